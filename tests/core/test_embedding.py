"""The embedding port, its adapters and its double."""

import asyncio
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web

from rectifier_core.adapters.minilm import BATCH, MiniLmEmbedder, batches
from rectifier_core.adapters.openai_embedding import OpenAiEmbedder
from rectifier_core.embedding import Embedder, embeddable, unit
from rectifier_core.errors import EmbeddingError, InputError
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.testing.scripted_endpoint import ScriptedEndpoint
from tests.support.embedding import Answer, endpoint, rows

ODD_TEXTS = (
    "",
    " \n\t ",
    "\x00",
    "\x00\x01\x1b\x7f\x9f",
    "a\ud800b",
    "\udfff",
    "\u200b\u202e\u2066",
    "\U000e0041\U000e0042",
    "e\u0301" * 5_000,
    "x" * 300_000,
    "数学" * 2_000,
    "[CLS] [SEP] [PAD] [MASK] [UNK]",
    "\ufdfa" * 1_000,
    "𝒙² ≤ 2½",
    "🧮👩‍🔬",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def minilm() -> AsyncIterator[MiniLmEmbedder]:
    async with MiniLmEmbedder() as embedder:
        yield embedder


@pytest.mark.parametrize("magnitude", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_unit_vectors_come_from_any_magnitude(magnitude: float) -> None:
    vectors = unit(np.array([[3 * magnitude, 4 * magnitude]]))
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, [[0.6, 0.8]])


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1.0, -np.inf]])
def test_vector_without_a_direction_is_refused(row: list[float]) -> None:
    with pytest.raises(EmbeddingError):
        unit(np.array([[1.0, 0.0], row]))


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_embeddable_text_is_encodable_short_and_not_blank(text: str) -> None:
    made = embeddable(text, at_most=100)
    assert made.strip()
    assert len(made.encode("utf-8")) <= 400
    assert "\x00" not in made


async def test_any_text_has_a_unit_vector_of_the_packaged_model(minilm: MiniLmEmbedder) -> None:
    vectors = await minilm.embed(ODD_TEXTS)
    assert vectors.shape == (len(ODD_TEXTS), minilm.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_packaged_model_knows_what_is_alike(minilm: MiniLmEmbedder) -> None:
    near, same, far = await minilm.embed(
        [
            "When the problem involves the area of a triangle.",
            "When a task asks how large a triangular region is.",
            "When an agent books a flight without consent.",
        ]
    )
    assert near @ same > 0.6 > 0.3 > near @ far


async def test_case_and_accents_do_not_count(minilm: MiniLmEmbedder) -> None:
    first, second = await minilm.embed(["Déjà vu, naïve Bézout", "deja vu, NAIVE bezout"])
    assert first @ second == pytest.approx(1, abs=1e-5)


async def test_vector_does_not_depend_on_company_or_order(minilm: MiniLmEmbedder) -> None:
    texts = ["short", "a much longer text " * 40, "a middling sentence about a circle", "short"]
    together = await minilm.embed(texts)
    alone = [(await minilm.embed([text]))[0] for text in texts]
    assert np.allclose(together, np.stack(alone), atol=1e-5)


async def test_text_beyond_the_window_is_cut_at_the_end(minilm: MiniLmEmbedder) -> None:
    start = "one two three " * 200
    first, second = await minilm.embed([start, start + "something else entirely " * 50])
    assert np.allclose(first, second, atol=1e-6)


async def test_no_texts_have_no_vectors(minilm: MiniLmEmbedder) -> None:
    assert (await minilm.embed([])).shape == (0, 384)


async def test_short_call_is_not_kept_behind_a_long_one(minilm: MiniLmEmbedder) -> None:
    long = asyncio.create_task(minilm.embed(["word " * 300] * 40))
    await minilm.embed(["short"])
    assert not long.done()
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long


async def test_embedder_that_is_not_open_says_so() -> None:
    embedder = MiniLmEmbedder()
    with pytest.raises(EmbeddingError, match="not loaded"):
        await embedder.embed(["text"])
    await embedder.close()


async def test_call_under_way_ends_with_an_error_when_the_model_is_closed() -> None:
    async with MiniLmEmbedder() as embedder:
        long = asyncio.create_task(embedder.embed(["word " * 300] * 40))
        await embedder.embed(["short"])
    with pytest.raises(EmbeddingError):
        await asyncio.wait_for(long, timeout=30)


async def test_packaged_model_opens_again_after_it_was_closed() -> None:
    embedder = MiniLmEmbedder()
    for _ in range(2):
        await embedder.open()
        await embedder.open()
        assert (await embedder.embed(["text"])).shape == (1, 384)
        await embedder.close()


async def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbeddingError, match=r"rectifier\[embedded\]"):
        await MiniLmEmbedder().open()


def test_import_loads_no_model() -> None:
    code = (
        "import sys, rectifier_core.adapters.minilm; "
        "print('onnxruntime' in sys.modules, 'tokenizers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_batches_hold_every_text_once_and_little_padding() -> None:
    lengths = [3, 256, 7, 7, 120, 2, 9, 256, 60, 60, 60, 60, 60]
    made = list(batches(lengths))
    assert sorted(place for batch in made for place in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= BATCH for b in made)
    assert list(batches([])) == []


async def test_endpoint_is_asked_in_batches_and_vectors_are_normalised() -> None:
    def answer(request: dict[str, object]) -> web.Response:
        texts = request["input"]
        assert isinstance(texts, list)
        return rows([[float(text), 1.0] for text in texts])

    async with (
        endpoint(answer) as (url, requests),
        OpenAiEmbedder(url, "key", "m", dimension=2) as embedder,
    ):
        vectors = await embedder.embed([str(n) for n in range(150)])
    assert [len(request["input"]) for request in requests] == [64, 64, 22]
    assert all(request["encoding_format"] == "float" for request in requests)
    expected = np.array([[n, 1.0] for n in range(150)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(vectors, expected)


async def test_vectors_are_ordered_by_their_index() -> None:
    answered = rows([[0.0, 1.0], [1.0, 0.0]], indexes=[1, 0])
    async with (
        endpoint(lambda _: answered) as (url, _),
        OpenAiEmbedder(url, "key", "m", dimension=2) as embedder,
    ):
        assert np.allclose(await embedder.embed(["a", "b"]), [[1, 0], [0, 1]])


async def test_dimension_is_asked_for_where_it_is_not_given() -> None:
    async with endpoint(lambda _: rows([[1.0, 2.0, 2.0]])) as (url, _):
        embedder = OpenAiEmbedder(url, "", "m")
        with pytest.raises(EmbeddingError):
            _ = embedder.dimension
        async with embedder:
            assert embedder.dimension == 3
            assert (await embedder.embed([])).shape == (0, 3)


def _raw(text: str, kind: str = "application/json") -> Answer:
    return lambda _: web.Response(text=text, content_type=kind)


BAD_ANSWERS: dict[str, Answer] = {
    "too few": lambda _: rows([[1.0, 0.0]]),
    "too many": lambda _: rows([[1.0, 0.0]] * 3),
    "none": lambda _: rows([]),
    "index twice": lambda _: rows([[1.0, 0.0]] * 2, indexes=[0, 0]),
    "index from one": lambda _: rows([[1.0, 0.0]] * 2, indexes=[1, 2]),
    "other dimension": lambda _: rows([[1.0, 0.0, 0.0]] * 2),
    "mixed dimensions": lambda _: rows([[1.0, 0.0], [1.0]]),
    "empty vectors": lambda _: rows([[], []]),
    "zero": lambda _: rows([[0.0, 0.0], [1.0, 0.0]]),
    "not finite": lambda _: rows([[float("nan"), 0.0], [1.0, 0.0]]),
    "overflowing": _raw(
        '{"data": [{"index": 0, "embedding": [1e999, 0]}, {"index": 1, "embedding": [1, 0]}]}'
    ),
    "null": _raw("null"),
    "not json": _raw("<html>busy</html>", "text/html"),
    "broken json": _raw('{"data": ['),
    "no data": _raw('{"error": {"message": "no"}}'),
    "words": _raw(json.dumps({"data": [{"index": 0, "embedding": "AAAA"}] * 2})),
    "empty": _raw(""),
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
async def test_answer_that_is_not_as_asked_is_an_error(kind: str) -> None:
    async with (
        endpoint(BAD_ANSWERS[kind]) as (url, requests),
        OpenAiEmbedder(url, "key", "m", dimension=2) as embedder,
    ):
        with pytest.raises(EmbeddingError):
            await embedder.embed(["a", "b"])
        assert len(requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_refusal_is_an_error_after_one_request(status: int) -> None:
    def answer(_: dict[str, object]) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "7"}, text="{}")

    async with (
        endpoint(answer) as (url, requests),
        OpenAiEmbedder(url, "key", "m", dimension=2) as embedder,
    ):
        with pytest.raises(EmbeddingError) as caught:
            await embedder.embed(["a"])
    assert caught.value.retry_after == 7
    assert "key" not in str(caught.value)
    assert len(requests) == 1


async def test_endpoint_that_is_away_is_an_error() -> None:
    async with endpoint(lambda _: rows([])) as (url, _):
        pass
    async with OpenAiEmbedder(url, "key", "m", dimension=2) as embedder:
        with pytest.raises(EmbeddingError):
            await embedder.embed(["a"])
    with pytest.raises(EmbeddingError):
        await OpenAiEmbedder(url, "key", "m").open()


async def test_endpoint_that_hangs_is_given_up_after_the_timeout() -> None:
    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    released = asyncio.Event()
    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server, OpenAiEmbedder(url, "k", "m", dimension=2, timeout=0.2) as embedder:
        with pytest.raises(EmbeddingError):
            await asyncio.wait_for(embedder.embed(["a"]), timeout=10)
        released.set()


@pytest.mark.parametrize("text", ODD_TEXTS)
async def test_any_text_can_be_sent(text: str) -> None:
    async with (
        endpoint(lambda _: rows([[1.0, 0.0]])) as (url, requests),
        OpenAiEmbedder(url, "key", "m", dimension=2, longest_text=1_000) as embedder,
    ):
        await embedder.embed([text])
    (sent,) = requests[0]["input"]
    assert 0 < len(sent.strip()) <= 1_000


SECRET = "the words of the text"


@pytest.mark.parametrize(
    "answer",
    [
        _raw(f"you said: {SECRET}"),
        _raw(json.dumps({"data": SECRET})),
        _raw(json.dumps({"data": [{"index": 0, "embedding": [SECRET]}]})),
        lambda _: web.Response(status=400, text=json.dumps({"error": {"message": SECRET}})),
        lambda _: web.Response(status=500, text=SECRET),
    ],
    ids=["no json", "no list", "no numbers", "refusal", "failure"],
)
async def test_errors_and_logs_hold_neither_key_nor_text(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        endpoint(answer) as (url, _),
        OpenAiEmbedder(url, "sk-very-secret", "m", dimension=2) as embedder,
    ):
        with pytest.raises(EmbeddingError) as caught:
            await embedder.embed([SECRET])
    shown = "".join(traceback.format_exception(caught.value)) + repr(embedder) + caplog.text
    assert caught.value.__cause__ is None
    assert SECRET not in shown
    assert "sk-very-secret" not in shown


async def test_nothing_is_sent_that_the_environment_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "other")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-mine: other")
    with ScriptedEndpoint(dimension=2) as scripted:
        async with OpenAiEmbedder(scripted.base_url, "", "m", dimension=2) as embedder:
            await embedder.embed(["a"])
    (call,) = scripted.calls
    assert "other" not in call.headers.values()
    assert call.headers["authorization"] == "Bearer none"


async def test_compressed_answer_is_an_error() -> None:
    def answer(_: dict[str, object]) -> web.Response:
        response = rows([[1.0, 0.0]])
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with (
        endpoint(answer) as (url, _),
        OpenAiEmbedder(url, "key", "m", dimension=2) as embedder,
    ):
        with pytest.raises(EmbeddingError, match="too long"):
            await embedder.embed(["a"])


@pytest.mark.parametrize(
    ("url", "key"), [("ftp://h/v1", "k"), ("no url", "k"), ("http://h", "k\n")]
)
def test_url_or_key_that_is_none_is_refused(url: str, key: str) -> None:
    with pytest.raises(InputError):
        OpenAiEmbedder(url, key + "x", "m")


async def test_hashed_vectors_are_units_and_stay_the_same() -> None:
    embedder: Embedder = HashedEmbedder()
    first, second = await embedder.embed(ODD_TEXTS), await HashedEmbedder().embed(ODD_TEXTS)
    assert first.shape == (len(ODD_TEXTS), 64)
    assert np.array_equal(first, second)
    assert np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-5)
    assert (await embedder.embed([])).shape == (0, 64)


async def test_texts_that_share_words_are_near_by_hash() -> None:
    one, two, other = await HashedEmbedder(256).embed(
        ["units are not converted", "units were not converted", "a loop stops short"]
    )
    assert one @ two > 0.6 > one @ other


async def test_hashed_embedder_fails_when_told_to() -> None:
    embedder = HashedEmbedder()
    embedder.error = EmbeddingError("away", retry_after=3)
    with pytest.raises(EmbeddingError):
        await embedder.embed(["text"])
    assert embedder.calls == 1
