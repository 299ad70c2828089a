"""The service, with a scripted judge and without one."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from rectifier.settings import Settings
from rectifier_core.testing.scripted_endpoint import ScriptedEndpoint
from tests.support.endpoint import endpoint
from tests.support.redis import redis, redis_url
from tests.support.service import Service, running

__all__ = ["endpoint", "redis", "redis_url"]


@pytest.fixture
async def service(
    redis_url: str, redis: Redis, endpoint: ScriptedEndpoint
) -> AsyncIterator[Service]:
    """The service with the scripted endpoint as its judge."""
    settings = Settings(
        redis_url=redis_url,
        qdrant_url=":memory:",
        judge_model="scripted",
        openai_base_url=endpoint.base_url,
    )
    async with running(settings) as started:
        yield started


@pytest.fixture
async def checks_only(redis_url: str, redis: Redis) -> AsyncIterator[Service]:
    """The service without a judge endpoint."""
    async with running(Settings(redis_url=redis_url, qdrant_url=":memory:")) as started:
        yield started
