"""Settings of the rectifier: the environment, read once."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rectifier_core.indicator import POOL_NAME

PREFIX = "RECTIFIER_"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8700
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

# Read by the client library, which may share the environment with the service.
CLIENT_SETTINGS = frozenset(
    PREFIX + name for name in ("BASE_URL", "API_KEY", "TIMEOUT", "ON_UNAVAILABLE", "DISABLED")
)


class Settings(BaseSettings):
    """Everything that a deployment can set. Nothing set is the embedded default."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        use_attribute_docstrings=True,
        env_ignore_empty=True,
        populate_by_name=True,
    )

    host: str = DEFAULT_HOST
    """Address to listen on; beyond loopback needs API keys."""
    port: Annotated[int, Field(ge=0, le=65_535)] = DEFAULT_PORT
    """Port to listen on; 0 takes a free one and prints it."""
    data_dir: Path = Path.home() / ".local" / "share" / "rectifier"
    """Folder of the embedded store and queue."""

    judge_model: str | None = None
    """Name of the judge model; absent: only the deterministic checks decide."""
    judge_timeout_s: Annotated[float, Field(gt=0, le=120)] = 30.0
    """Seconds that one judge call may take, within the request's deadline."""
    judge_concurrency: Annotated[int, Field(ge=1, le=1_000)] = 32
    """Judge calls under way at once."""
    openai_base_url: str | None = Field(None, validation_alias="OPENAI_BASE_URL")
    """The OpenAI-compatible endpoint of the judge; absent: OpenAI's own."""
    openai_api_key: SecretStr | None = Field(None, validation_alias="OPENAI_API_KEY")
    """Its key; local servers need none."""

    embedding_model: str | None = None
    """An embedding model behind an endpoint; absent: the packaged one."""
    embedding_base_url: str | None = None
    """Its OpenAI-compatible endpoint."""
    embedding_api_key: SecretStr | None = None
    """Its key."""
    embedding_dimension: Annotated[int, Field(ge=1, le=16_384)] | None = None
    """Its dimension; absent: asked once at start."""

    qdrant_url: str | None = Field(None, validation_alias="QDRANT_URL")
    """A Qdrant server; absent: the embedded store in the data folder."""
    qdrant_api_key: SecretStr | None = Field(None, validation_alias="QDRANT_API_KEY")
    """Its key."""
    redis_url: str | None = Field(None, validation_alias="REDIS_URL")
    """A Redis or Valkey server; absent: the bundled one in the data folder."""

    config: Path | None = None
    """A TOML file with presets, and with what pools set over them."""
    default_preset: str | None = None
    """The preset of requests that name none; absent: ``fast``, or ``checks`` without a judge."""
    default_pools: Annotated[tuple[str, ...], NoDecode] = ()
    """Pools of requests that name none, separated by commas; absent: all."""
    store_content: bool = True
    """Whether the contents of runs are kept for 24 hours."""
    shutdown_s: Annotated[float, Field(ge=0, le=600)] = 20.0
    """Seconds that requests under way get to finish at a stop."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log lines written."""

    @property
    def preset(self) -> str:
        """The preset of requests that name none."""
        return self.default_preset or ("fast" if self.judge_model else "checks")

    @field_validator("default_pools", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        if not self.judge_model and self.preset != "checks":
            raise ValueError("a preset other than checks needs judge_model")
        for name in self.default_pools:
            if not POOL_NAME.fullmatch(name):
                raise ValueError(f"default_pools: {name!r} is no pool name")
        if self.host not in LOOPBACK:
            raise ValueError("host is a loopback address as long as no API keys are configured")
        if self.embedding_base_url and not self.embedding_model:
            raise ValueError("embedding_base_url needs embedding_model")
        return self


def own_url() -> str:
    """Return the URL of a service that runs on this machine with this environment."""
    environment = os.environ  # noqa: TID251 - this is the settings module
    host = environment.get(f"{PREFIX}HOST") or DEFAULT_HOST
    port = environment.get(f"{PREFIX}PORT") or DEFAULT_PORT
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def unknown_settings() -> list[str]:
    """Return the names in the environment that look like settings and are none."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | CLIENT_SETTINGS
    names = os.environ  # noqa: TID251 - this is the settings module
    return sorted(name for name in names if name.startswith(PREFIX) and name not in known)
