"""The store port, on every adapter and engine."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectifier_core.adapters.edge_store import EdgeStore
from rectifier_core.adapters.qdrant_store import QdrantStore
from rectifier_core.errors import (
    ConflictError,
    EmbeddingError,
    InputError,
    StoreError,
    StoreMismatchError,
)
from rectifier_core.indicator import Example, IndicatorId, Mode, Status
from rectifier_core.store import Binding, IndicatorStore, StoredIndicator
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.testing.qdrant_http import QdrantHttp
from rectifier_core.vectors import reembed
from tests.support.stores import (
    DIMENSION,
    ENGINES,
    LASTING_ENGINES,
    MODEL,
    MakeStore,
    a_stored,
    an_indicator,
    engine,
    numbered,
    opened,
)

HERE: Any = {"tenant": "default", "pool": "math"}  # keyword arguments


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with QdrantHttp(tmp_path_factory.mktemp("qdrant")) as one:
        yield one.url


@pytest.fixture(params=ENGINES)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, stand_in: str
) -> AsyncIterator[IndicatorStore]:
    with engine(request.param, tmp_path, stand_in=stand_in) as make:
        async with opened(make) as one:
            yield one


@pytest.fixture(params=LASTING_ENGINES)
def lasting(request: pytest.FixtureRequest, tmp_path: Path, stand_in: str) -> Iterator[MakeStore]:
    with engine(request.param, tmp_path, stand_in=stand_in) as make:
        yield make


async def everything(store: IndicatorStore, **filters: Any) -> list[StoredIndicator]:
    return [entry async for entry in store.scan(**filters)]


async def test_every_field_and_both_vectors_come_back(store: IndicatorStore) -> None:
    full = a_stored(
        7,
        trigger_condition="When units mix.",
        risk_alert="Look at the units.",
        examples=(
            Example("add 1 km and 1 m", "2", violated=True),
            Example("", "x", violated=False),
        ),
        status=Status.CANDIDATE,
        mode=Mode.SHADOW,
        source="import:a-1@owner/repository",
        licence="CC-BY-4.0",
    )
    await store.upsert([full])
    (back,) = await store.get([full.indicator.id], **HERE)
    assert back.indicator == full.indicator
    assert back.indicator.content_hash == full.indicator.content_hash
    assert back.trigger.dtype == back.definition.dtype == np.float32
    np.testing.assert_allclose(back.trigger, full.trigger, atol=1e-6)
    np.testing.assert_allclose(back.definition, full.definition, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_any_text_comes_back_to_the_character(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("text")
    entries = [
        a_stored(n, name=text, definition=text, examples=(Example(text, text, violated=True),))
        for n, text in enumerate(texts)
    ]

    async def round_trip(make: MakeStore) -> list[StoredIndicator]:
        async with opened(make) as store:
            await store.upsert(entries)
            return await everything(store)

    for make in (QdrantStore, lambda: EdgeStore(folder)):
        found = asyncio.run(round_trip(make))
        assert [one.indicator for one in found] == [one.indicator for one in entries]


@pytest.mark.parametrize(
    "text",
    [
        "\0",
        "a\u2028b\r\n",
        "\ufeff\u202e\U000e0041",
        "👩‍🔬 数学 é e\u0301",
        '"\\"\\ud800"',
        "{}[],:",
    ],
)
async def test_awkward_text_comes_back_to_the_character(store: IndicatorStore, text: str) -> None:
    entry = a_stored(1, name=text, definition=text, risk_alert=text, source=text)
    await store.upsert([entry])
    assert [one.indicator for one in await everything(store)] == [entry.indicator]


async def test_half_a_surrogate_pair_is_refused(store: IndicatorStore) -> None:
    for field in ("name", "definition", "trigger_condition", "risk_alert", "source", "licence"):
        fields: Any = {field: "a\ud83d"}
        with pytest.raises(InputError) as caught:
            await store.upsert([a_stored(1), a_stored(2, **fields)])
        assert caught.value.field == field
    assert await everything(store) == []


async def test_half_a_surrogate_pair_in_an_example_is_refused(store: IndicatorStore) -> None:
    with pytest.raises(InputError) as caught:
        await store.upsert([a_stored(1, examples=(Example("t", "\udc00", violated=True),))])
    assert caught.value.field == "examples.0.message"


async def test_an_id_that_is_no_canonical_uuid_is_refused(store: IndicatorStore) -> None:
    upper = "AAAAAAAA-AAAA-AAAA-AAAA-AAAAAAAAAAAA"
    for text in ("", "1", "not-a-uuid", "0" * 32, f"{{{upper.lower()}}}", upper):
        identity = IndicatorId(text)
        with pytest.raises(InputError):
            await store.upsert([a_stored(1, id=identity)])
        assert await store.get([identity], **HERE) == []
        await store.delete([identity], **HERE)


@pytest.mark.parametrize(
    "numbers",
    [
        [0.0] * DIMENSION,
        [float("nan")] + [1.0] * (DIMENSION - 1),
        [float("inf")] + [1.0] * (DIMENSION - 1),
        [1e-40] * DIMENSION,
        [3e38] * DIMENSION,
        [1.0] * (DIMENSION - 1),
        [1.0] * (DIMENSION + 1),
        [],
        [[1.0] * DIMENSION],
    ],
    ids=["zero", "nan", "infinite", "tiny", "huge", "short", "long", "empty", "nested"],
)
async def test_a_vector_without_use_is_refused_before_the_engine(
    store: IndicatorStore, numbers: list[float]
) -> None:
    vector = np.array(numbers, dtype=np.float32)
    for name in ("trigger", "definition"):
        bad = replace(a_stored(2), **{name: vector})  # type: ignore[arg-type]
        with pytest.raises(InputError) as caught:
            await store.upsert([a_stored(1), bad])
        assert caught.value.field == name
    assert await everything(store) == []
    with pytest.raises(InputError):
        await store.nearest(vector, **HERE, statuses=[Status.ACTIVE], limit=1)


async def test_a_repeated_write_replaces_the_whole_point(store: IndicatorStore) -> None:
    await store.upsert([a_stored(1, risk_alert="old", source="old"), a_stored(2)])
    newer = a_stored(1, axis=3, definition="New.")
    await store.upsert([newer])
    await store.upsert([newer])
    first, second = await everything(store)
    assert first.indicator == newer.indicator
    np.testing.assert_allclose(first.trigger, newer.trigger, atol=1e-6)
    assert second.indicator == an_indicator(2)


async def test_nothing_to_write_is_fine(store: IndicatorStore) -> None:
    await store.upsert([])
    await store.delete([], **HERE)
    assert await store.get([], **HERE) == []
    assert await everything(store) == []


async def test_get_keeps_the_order_asked_for(store: IndicatorStore) -> None:
    await store.upsert([a_stored(n) for n in (1, 2, 3)])
    found = await store.get([numbered(n) for n in (3, 9, 1)], **HERE)
    assert [entry.indicator.id for entry in found] == [numbered(3), numbered(1)]


async def test_nothing_crosses_tenants_or_pools(store: IndicatorStore) -> None:
    mine, theirs, other = (
        a_stored(1, axis=0),
        a_stored(2, axis=0, tenant="b"),
        a_stored(3, axis=0, pool="code"),
    )
    await store.upsert([mine, theirs, other])
    ids = [one.indicator.id for one in (mine, theirs, other)]
    assert [one.indicator for one in await store.get(ids, **HERE)] == [mine.indicator]
    near = await store.nearest(mine.definition, **HERE, statuses=list(Status), limit=9)
    assert [one.indicator for one in near] == [mine.indicator]
    assert [one.indicator for one in await everything(store, tenant="b")] == [theirs.indicator]
    assert [one.indicator for one in await everything(store, pool="code")] == [other.indicator]
    await store.delete(ids, **HERE)
    assert [one.indicator for one in await everything(store)] == [theirs.indicator, other.indicator]


@pytest.mark.parametrize("elsewhere", [{"tenant": "b"}, {"pool": "code"}])
async def test_an_id_of_another_pool_is_not_overwritten(
    store: IndicatorStore, elsewhere: dict[str, Any]
) -> None:
    await store.upsert([a_stored(1)])
    with pytest.raises(ConflictError) as caught:
        await store.upsert([a_stored(1, **elsewhere)])
    assert caught.value.kind == "id_taken"
    assert [one.indicator for one in await everything(store)] == [an_indicator(1)]


async def test_a_scan_of_several_pages_is_complete_and_sorted_by_id(store: IndicatorStore) -> None:
    draw = np.random.default_rng(0)
    entries = [a_stored(int(n)) for n in draw.permutation(600)]
    await store.upsert(entries)
    ids = [entry.indicator.id for entry in await everything(store)]
    assert ids == sorted(entry.indicator.id for entry in entries)


async def test_a_scan_filters_by_status(store: IndicatorStore) -> None:
    await store.upsert([a_stored(n, status=status) for n, status in enumerate(Status)])
    for status in Status:
        assert {one.indicator.status for one in await everything(store, status=status)} == {status}


async def test_pages_follow_one_another(store: IndicatorStore) -> None:
    await store.upsert([a_stored(n) for n in range(5)])
    first = await store.page(**HERE, limit=2)
    second = await store.page(**HERE, limit=2, after=first[-1].indicator.id)
    last = await store.page(**HERE, limit=9, after=second[-1].indicator.id)
    assert [one.indicator.id for page in (first, second, last) for one in page] == [
        numbered(n) for n in range(5)
    ]
    # The id that a page follows need not exist any more.
    await store.delete([numbered(1)], **HERE)
    assert (await store.page(**HERE, limit=1, after=numbered(1)))[0].indicator.id == numbered(2)
    with pytest.raises(InputError):
        await store.page(limit=1, after=IndicatorId("x"))


async def test_nearest_compares_the_definition_vector(store: IndicatorStore) -> None:
    axes = np.eye(DIMENSION, dtype=np.float32)
    near = StoredIndicator(an_indicator(1), trigger=axes[1], definition=axes[0])
    far = StoredIndicator(an_indicator(2), trigger=axes[0], definition=-axes[0])
    between = StoredIndicator(an_indicator(3), trigger=axes[0], definition=axes[2])
    await store.upsert([far, between, near])
    found = await store.nearest(axes[0] * 5, **HERE, statuses=[Status.ACTIVE], limit=3)
    assert [one.indicator.id for one in found] == [numbered(1), numbered(3), numbered(2)]
    assert [one.similarity for one in found] == pytest.approx([1.0, 0.0, -1.0], abs=1e-6)
    assert all(-1 <= one.similarity <= 1 for one in found)
    assert len(await store.nearest(axes[0], **HERE, statuses=[Status.ACTIVE], limit=2)) == 2


async def test_nearest_filters_by_several_statuses(store: IndicatorStore) -> None:
    await store.upsert([a_stored(n, axis=0, status=status) for n, status in enumerate(Status)])
    vector = a_stored(1, axis=0).definition
    wanted = [Status.ACTIVE, Status.RETIRED]
    found = await store.nearest(vector, **HERE, statuses=wanted, limit=9)
    assert [one.indicator.status for one in found] == wanted
    assert await store.nearest(vector, **HERE, statuses=[], limit=9) == []


async def test_parallel_writes_all_arrive(store: IndicatorStore) -> None:
    await asyncio.gather(*(store.upsert([a_stored(n)]) for n in range(10)))
    assert [one.indicator.id for one in await everything(store)] == [numbered(n) for n in range(10)]


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    for store in (QdrantStore(), EdgeStore(tmp_path)):
        with pytest.raises(StoreError, match="not open"):
            await store.check()
        await store.close()


async def test_a_closed_store_can_be_closed_again_and_is_not_open(store: IndicatorStore) -> None:
    await store.check()
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await store.check()


async def test_points_outlive_the_store(lasting: MakeStore) -> None:
    async with opened(lasting) as store:
        await store.upsert([a_stored(1)])
    async with opened(lasting) as store:
        assert [one.indicator for one in await everything(store)] == [an_indicator(1)]


@pytest.mark.parametrize(
    ("model", "dimension"),
    [("tests/model-b", DIMENSION), (MODEL, DIMENSION * 2), ("tests_model_a", DIMENSION)],
)
async def test_another_model_or_dimension_is_refused_with_a_way_out(
    lasting: MakeStore, model: str, dimension: int
) -> None:
    async with opened(lasting) as store:
        await store.upsert([a_stored(1)])
    with pytest.raises(StoreMismatchError) as caught:
        async with opened(lasting, model=model, dimension=dimension):
            pass
    for word in (MODEL, model, str(dimension), "re-embed", "RECTIFIER_EMBEDDING_MODEL"):
        assert word in str(caught.value)
    async with opened(lasting) as store:
        assert [one.indicator for one in await everything(store)] == [an_indicator(1)]


# Another embedding model


@pytest.fixture(params=["tests/model-b", "tests_model_a"])  # the second has the first one's slug
def another(request: pytest.FixtureRequest) -> HashedEmbedder:
    return HashedEmbedder(DIMENSION * 2, model=request.param)


async def test_reembedding_keeps_everything_but_the_vectors(
    lasting: MakeStore, another: HashedEmbedder
) -> None:
    entries = [a_stored(n, status=list(Status)[n % 3], tenant=f"t{n % 2}") for n in range(300)]
    async with opened(lasting) as store:
        await store.upsert(entries)
    store = lasting()
    assert await store.binding() == Binding(MODEL, DIMENSION)
    assert await reembed(store, another) == len(entries)
    await store.close()
    async with opened(lasting, model=another.model, dimension=another.dimension) as store:
        assert await store.binding() == Binding(another.model, another.dimension)
        found = await everything(store)
        assert [one.indicator for one in found] == [one.indicator for one in entries]
        (wanted,) = await another.embed([entries[7].indicator.definition_text])
        np.testing.assert_allclose(found[7].definition, wanted, atol=1e-6)
        await store.upsert([replace(found[0], definition=wanted)])
    with pytest.raises(StoreMismatchError):
        async with opened(lasting):
            pass


async def test_there_and_back_again(lasting: MakeStore) -> None:
    first, second = HashedEmbedder(DIMENSION, model="a/b"), HashedEmbedder(DIMENSION, model="a.b")
    async with opened(lasting, model=first.model) as store:
        await store.upsert([a_stored(1)])
    for embedder in (second, first, second):
        store = lasting()
        assert await reembed(store, embedder) == 1
        assert [one.indicator for one in await everything(store)] == [an_indicator(1)]
        await store.close()


async def test_reembedding_that_breaks_off_leaves_the_old_vectors_in_use(
    lasting: MakeStore, another: HashedEmbedder
) -> None:
    async with opened(lasting) as store:
        await store.upsert([a_stored(n) for n in range(3)])
    another.error = EmbeddingError("away")
    store = lasting()
    with pytest.raises(EmbeddingError):
        await reembed(store, another)
    assert len(await everything(store)) == 3
    await store.close()
    async with opened(lasting) as store:
        assert await store.binding() == Binding(MODEL, DIMENSION)
        assert len(await everything(store)) == 3
    another.error = None
    store = lasting()
    assert await reembed(store, another) == 3
    await store.close()


async def test_there_is_nothing_to_reembed_where_the_model_is_the_same(lasting: MakeStore) -> None:
    embedder = HashedEmbedder(DIMENSION, model=MODEL)
    for _ in range(2):  # an empty store, and one that is bound
        store = lasting()
        assert await reembed(store, embedder) == 0
        await store.check()
        await store.close()


async def test_a_switch_to_vectors_that_do_not_fit_is_refused(lasting: MakeStore) -> None:
    async def wrong() -> AsyncIterator[StoredIndicator]:
        yield a_stored(1)

    async with opened(lasting) as store:
        await store.upsert([a_stored(5)])
        with pytest.raises(InputError):
            await store.switch(Binding("other", DIMENSION + 1), wrong())
        assert [one.indicator for one in await everything(store)] == [an_indicator(5)]


# Qdrant over HTTP


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QdrantHttp]:
    with QdrantHttp(tmp_path) as one:
        yield one


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_a_refusing_server_is_a_store_error(server: QdrantHttp, status: int) -> None:
    async with opened(lambda: QdrantStore(server.url)) as store:
        server.fault = status
        for attempt in (
            store.check(),
            store.upsert([a_stored(1)]),
            store.get([numbered(1)], **HERE),
            store.delete([numbered(1)], **HERE),
            store.page(limit=1),
            store.nearest(a_stored(1).definition, **HERE, statuses=[Status.ACTIVE], limit=1),
        ):
            with pytest.raises(StoreError) as caught:
                await attempt
            assert not isinstance(caught.value, StoreMismatchError)
            assert caught.value.__cause__ is not None
        server.fault = None
        await store.check()


async def test_a_silent_server_is_a_store_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = QdrantStore(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
        with pytest.raises(StoreError, match=r"within 0\.2 s"):
            await store.open(model=MODEL, dimension=DIMENSION)
        await store.close()


async def test_an_absent_server_is_a_store_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    store = QdrantStore(url, timeout_s=5)
    with pytest.raises(StoreError):
        await store.open(model=MODEL, dimension=DIMENSION)
    await store.close()


async def test_a_silent_grpc_port_is_a_store_error_in_time(server: QdrantHttp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = QdrantStore(server.url, timeout_s=0.3, grpc_port=silent.getsockname()[1])
        with pytest.raises(StoreError):
            await store.open(model=MODEL, dimension=DIMENSION)
        await store.close()
    assert server.requests == []


async def test_a_grpc_port_that_speaks_something_else_is_a_store_error(server: QdrantHttp) -> None:
    port = int(server.url.rpartition(":")[2])
    store = QdrantStore(server.url, timeout_s=5, grpc_port=port)
    with pytest.raises(StoreError):
        await store.open(model=MODEL, dimension=DIMENSION)
    await store.close()


async def test_http_serves_where_nothing_speaks_grpc(server: QdrantHttp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    async with opened(lambda: QdrantStore(server.url, grpc_port=port)) as store:
        await store.check()
    assert server.requests


async def test_the_collection_stands_behind_an_alias_with_payload_indexes(
    server: QdrantHttp,
) -> None:
    async with opened(lambda: QdrantStore(server.url, api_key="secret")) as store:
        await store.upsert([a_stored(1)])
    assert "PUT /collections/rectifier_tests-model-a_8" in server.requests
    assert server.requests.count("PUT /collections/rectifier_tests-model-a_8/index") == 3
    assert "PUT /collections/rectifier/points" in server.requests


async def test_two_stores_that_start_at_once_agree(server: QdrantHttp) -> None:
    stores = [QdrantStore(server.url) for _ in range(4)]
    await asyncio.gather(*(one.open(model=MODEL, dimension=DIMENSION) for one in stores))
    await stores[0].upsert([a_stored(1)])
    assert [one.indicator for one in await everything(stores[1])] == [an_indicator(1)]
    for one in stores:
        await one.close()


async def test_a_start_that_broke_off_before_the_alias_is_completed(server: QdrantHttp) -> None:
    async with opened(lambda: QdrantStore(server.url)):
        pass
    server._aliases.clear()
    async with opened(lambda: QdrantStore(server.url)) as store:
        await store.check()


# The embedded engine


WRITER = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = {path!r}
from rectifier_core.adapters.edge_store import EdgeStore
from tests.support.stores import DIMENSION, MODEL, a_stored

async def main():
    store = EdgeStore(Path({folder!r}))
    await store.open(model=MODEL, dimension=DIMENSION)
    n = 0
    while True:
        await store.upsert([a_stored(n)])
        print(n, flush=True)
        n += 1

asyncio.run(main())
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has ``tmp_path`` open, writes point after point and prints what is stored."""
    code = WRITER.format(folder=str(tmp_path), path=[str(Path(__file__).parents[2])])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        watchdog = threading.Timer(50, process.kill)
        watchdog.start()
        yield process
        watchdog.cancel()
        process.kill()


def _written(writer: subprocess.Popen[str], *, at_least: int) -> int:
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) + 1 >= at_least:
            return int(line) + 1
    raise AssertionError("the writer ended early")


async def test_acknowledged_points_survive_a_kill(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    _written(writer, at_least=12)
    writer.send_signal(signal.SIGKILL)
    assert writer.stdout is not None
    rest = [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.wait(10)
    acknowledged = max([11, *rest]) + 1
    async with opened(lambda: EdgeStore(tmp_path)) as store:
        ids = [entry.indicator.id for entry in await everything(store)]
        assert ids[:acknowledged] == [numbered(n) for n in range(acknowledged)]
        assert len(ids) <= acknowledged + 1
        await store.upsert([a_stored(10_000)])


async def test_a_second_process_is_refused_and_told_who_holds_the_folder(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    _written(writer, at_least=1)
    store = EdgeStore(tmp_path)
    with pytest.raises(StoreError) as caught:
        await store.open(model=MODEL, dimension=DIMENSION)
    assert not isinstance(caught.value, StoreMismatchError)
    assert str(writer.pid) in str(caught.value)
    assert socket.gethostname() in str(caught.value)
    await store.close()
    writer.kill()
    writer.wait(10)
    await store.open(model=MODEL, dimension=DIMENSION)
    await store.close()


async def test_a_second_store_in_this_process_is_refused_until_the_first_is_closed(
    tmp_path: Path,
) -> None:
    async with opened(lambda: EdgeStore(tmp_path)):
        second = EdgeStore(tmp_path)
        with pytest.raises(StoreError, match=str(os.getpid())):
            await second.open(model=MODEL, dimension=DIMENSION)
    await second.open(model=MODEL, dimension=DIMENSION)
    await second.close()


async def test_a_refused_open_gives_the_folder_free(tmp_path: Path) -> None:
    async with opened(lambda: EdgeStore(tmp_path)):
        pass
    refused = EdgeStore(tmp_path)
    with pytest.raises(StoreMismatchError):
        await refused.open(model="another", dimension=DIMENSION)
    async with opened(lambda: EdgeStore(tmp_path)) as store:
        await store.check()
    await refused.close()


async def test_a_first_start_that_broke_off_is_completed(tmp_path: Path) -> None:
    async with opened(lambda: EdgeStore(tmp_path)):
        pass
    points = tmp_path / "points_tests-model-a_8"
    points.rename(tmp_path / f"part_{points.name}")
    (tmp_path / f"part_{points.name}" / "edge_config.json").unlink(missing_ok=True)
    async with opened(lambda: EdgeStore(tmp_path)) as store:
        await store.upsert([a_stored(1)])
        assert len(await everything(store)) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"x"', '{"format": 1}', '{"format": 1, "model": "m", "dimension": []}']
)
async def test_a_damaged_manifest_is_a_store_error(tmp_path: Path, text: str) -> None:
    async with opened(lambda: EdgeStore(tmp_path)):
        pass
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match="manifest"):
        async with opened(lambda: EdgeStore(tmp_path)):
            pass


async def test_points_without_a_manifest_are_not_taken_for_an_empty_store(tmp_path: Path) -> None:
    async with opened(lambda: EdgeStore(tmp_path)) as store:
        await store.upsert([a_stored(1)])
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(StoreError, match="manifest"):
        async with opened(lambda: EdgeStore(tmp_path)):
            pass


async def test_a_folder_of_a_later_format_is_refused(tmp_path: Path) -> None:
    async with opened(lambda: EdgeStore(tmp_path)):
        pass
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))
    with pytest.raises(StoreMismatchError, match="format 2"):
        async with opened(lambda: EdgeStore(tmp_path)):
            pass


async def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        async with opened(lambda: EdgeStore(tmp_path / "file" / "data")):
            pass


def test_ids_sort_as_the_engines_sort_them() -> None:
    draw = np.random.default_rng(1)
    ids = [uuid.UUID(bytes=draw.bytes(16)) for _ in range(100)]
    assert sorted(map(str, ids)) == [str(one) for one in sorted(ids)]
