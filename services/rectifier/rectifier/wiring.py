"""Wiring: the one place where settings become parts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from redis.asyncio import Redis

from rectifier.audit import Auditor
from rectifier.configuration import read_configuration
from rectifier.idempotency import Idempotency
from rectifier.judge import Judge
from rectifier.live import LiveSnapshot
from rectifier.metrics import Metrics
from rectifier.parts import Parts
from rectifier.rectify import Gatekeeper
from rectifier.runs import Runs
from rectifier.settings import Settings
from rectifier_core import vectors
from rectifier_core.adapters.openai_chat import OpenAiChat
from rectifier_core.adapters.openai_embedding import OpenAiEmbedder
from rectifier_core.adapters.openai_endpoint import DEFAULT_BASE_URL, OpenAiEndpoint
from rectifier_core.adapters.redis_client import open_redis
from rectifier_core.chat import ChatModel
from rectifier_core.embedding import Embedder
from rectifier_core.errors import InputError
from rectifier_core.pools import Pools
from rectifier_core.starter import starter_indicators
from rectifier_core.store import IndicatorStore
from rectifier_core.valkey import BundledServer

STORE_FOLDER = "indicators"
QUEUE_FOLDER = "queue"
CANCEL_AGAIN_S = 1.0


@asynccontextmanager
async def open_parts(
    settings: Settings, metrics: Metrics, *, embedder: Embedder | None = None
) -> AsyncIterator[Parts]:
    """Open everything that requests need, and close it in reverse.

    Args:
        settings: What the deployment set.
        metrics: The process's series.
        embedder: Opened by the caller, instead of the one that the settings name.

    Raises:
        RectifierError: Something that is needed cannot be opened; the text says what to do.
    """
    configuration = read_configuration(settings.config)
    if settings.preset not in configuration.presets:
        raise InputError(f"RECTIFIER_DEFAULT_PRESET: there is no preset {settings.preset!r}")
    async with AsyncExitStack() as stack:
        if embedder is None:
            embedder = await stack.enter_async_context(_open_embedder(settings))
        redis = await stack.enter_async_context(_open_redis(settings))
        store = await stack.enter_async_context(_open_store(settings, embedder))
        pools = Pools(store, embedder, redis)
        await pools.seed(starter_indicators())
        # Heals a crash between store and record, and a Redis that lost its data; after the seed,
        # which could not tell what a new store lacks from what a user deleted.
        await pools.reconcile()
        live = LiveSnapshot(store, pools, dimension=embedder.dimension)
        await live.refresh()
        await stack.enter_async_context(_followed(live))
        judge = None
        if settings.judge_model is not None:
            judge = Judge(await stack.enter_async_context(open_chat(settings)))
        auditor = Auditor(judge=judge, embedder=embedder, snapshots=live)
        runs = Runs(redis, content=settings.store_content)
        yield Parts(
            auditor=auditor,
            gatekeeper=Gatekeeper(auditor, runs, metrics),
            runs=runs,
            idempotency=Idempotency(redis),
            pools=pools,
            store=store,
            live=live,
            embedder=embedder,
            metrics=metrics,
            preset=settings.preset,
            default_pools=settings.default_pools,
            judge_model=settings.judge_model,
            configuration=configuration,
        )


@asynccontextmanager
async def open_chat(settings: Settings) -> AsyncIterator[ChatModel]:
    """Open the judge model's endpoint."""
    endpoint = OpenAiEndpoint(
        settings.openai_base_url,
        settings.openai_api_key,
        timeout=settings.judge_timeout_s,
        concurrency=settings.judge_concurrency,
    )
    async with endpoint:
        yield OpenAiChat(endpoint, settings.judge_model or "")


@asynccontextmanager
async def _open_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    if settings.embedding_model is None:
        # Imported here: the packaged model comes with the extra ``embedded``.
        from rectifier_core.adapters.minilm import MiniLmEmbedder

        async with MiniLmEmbedder() as packaged:
            yield packaged
        return
    key = settings.embedding_api_key
    remote = OpenAiEmbedder(
        settings.embedding_base_url or DEFAULT_BASE_URL,
        key.get_secret_value() if key else "",
        settings.embedding_model,
        dimension=settings.embedding_dimension,
    )
    async with remote:
        yield remote


@asynccontextmanager
async def _open_redis(settings: Settings) -> AsyncIterator[Redis]:
    async with AsyncExitStack() as stack:
        url = settings.redis_url
        if url is None:
            server = BundledServer(settings.data_dir / QUEUE_FOLDER)
            url = await stack.enter_async_context(server)
        yield await stack.enter_async_context(open_redis(url))


@asynccontextmanager
async def _open_store(settings: Settings, embedder: Embedder) -> AsyncIterator[IndicatorStore]:
    store = _store(settings)
    try:
        await store.open(model=embedder.model, dimension=embedder.dimension)
        yield store
    finally:
        await store.close()


def _store(settings: Settings) -> IndicatorStore:
    if settings.qdrant_url is None:
        # Imported here: the engine comes with the extra ``embedded``.
        from rectifier_core.adapters.edge_store import EdgeStore

        return EdgeStore(settings.data_dir / STORE_FOLDER)
    # Imported here: the client takes 40 MB, which the embedded default does not need.
    from rectifier_core.adapters.qdrant_store import QdrantStore

    key = settings.qdrant_api_key
    return QdrantStore(settings.qdrant_url, api_key=key.get_secret_value() if key else None)


async def reembed(settings: Settings) -> int:
    """Give the store's indicators vectors of the configured model; return how many they were.

    Raises:
        RectifierError: The model or the store did not answer; the old vectors stay in use.
    """
    store = _store(settings)
    try:
        async with _open_embedder(settings) as embedder:
            return await vectors.reembed(store, embedder)
    finally:
        await store.close()


@asynccontextmanager
async def _followed(live: LiveSnapshot) -> AsyncIterator[None]:
    task = asyncio.create_task(live.follow())
    try:
        yield
    finally:
        # Again until it ends: a client that gives up a call at that very moment can swallow one.
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
