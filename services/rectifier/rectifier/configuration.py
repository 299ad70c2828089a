"""The configuration file: presets of a deployment's own, and what its pools set.

[presets.strict]
base = "fast"
tau = 1.0

[pools.code]
tau = 1.0

[pools.experimental]
mode = "shadow"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rectifier.policy import PRESETS, Policy, checked, overridden
from rectifier.wire import UNKNOWN_FIELD, PolicyIn, PoolName
from rectifier_core.errors import InputError

MAX_BYTES = 1024 * 1024


class _Preset(PolicyIn):
    base: str = "fast"


class _Pool(PolicyIn):
    preset: None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    presets: dict[PoolName, _Preset] = {}
    pools: dict[PoolName, _Pool] = {}


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says, made sense of.

    Attributes:
        presets: All presets by name, the built-in ones among them.
        pools: Policy fields that a pool sets, by pool.
    """

    presets: Mapping[str, Policy] = field(default_factory=lambda: PRESETS)
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: DEFAULT_POOLS)

    @property
    def shadow_pools(self) -> frozenset[str]:
        """The pools whose indicators are asked and not counted."""
        return frozenset(
            name for name, fields in self.pools.items() if fields.get("mode") == "shadow"
        )


# A program that nearly works does not work: code is held to every indicator.
DEFAULT_POOLS: Mapping[str, Mapping[str, Any]] = {"code": {"tau": 1.0}}


def read_configuration(path: Path | None) -> Configuration:
    """Return what the file says; without one, the built-in presets.

    Raises:
        InputError: The file cannot be read, names an unknown field or preset, or sets a value that
            is out of range; the text says where.
    """
    if path is None:
        return Configuration()
    given = _parsed(path)
    presets = dict(PRESETS)
    for name, preset in given.presets.items():
        where = f"presets.{name}"
        if name in PRESETS:
            raise InputError(f"{path}: {where}: a built-in preset cannot be changed", field=where)
        presets[name] = _preset(path, name, preset)
    pools = {name: fields.overrides() for name, fields in given.pools.items()}
    for name, overrides in pools.items():
        for policy in presets.values():
            _made(path, f"pools.{name}", policy, overrides)
    return Configuration(presets, {**DEFAULT_POOLS, **pools})


def _parsed(path: Path) -> _File:
    try:
        text = path.read_bytes()[: MAX_BYTES + 1].decode()
        return _File.model_validate(tomllib.loads(text))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    except ValidationError as error:
        worst = error.errors(include_input=False)[0]
        steps = list(worst["loc"])
        if worst["type"] == UNKNOWN_FIELD:
            steps.append(worst["ctx"]["field"])
        where = ".".join(str(step) for step in steps)
        raise InputError(f"{path}: {where}: {worst['msg']}", field=where) from None


def _preset(path: Path, name: str, given: _Preset) -> Policy:
    where = f"presets.{name}"
    if given.base not in PRESETS:
        raise InputError(f"{path}: {where}.base: no preset {given.base!r}", field=f"{where}.base")
    fields = given.overrides()
    del fields["base"]
    return replace(_made(path, where, PRESETS[given.base], fields), preset=name)


def _made(path: Path, where: str, base: Policy, fields: Mapping[str, Any]) -> Policy:
    try:
        return checked(overridden(base, fields))
    except InputError as error:
        at = f"{where}.{(error.field or '').removeprefix('policy.')}"
        raise InputError(f"{path}: {at}: with preset {base.preset}: {error}", field=at) from error
