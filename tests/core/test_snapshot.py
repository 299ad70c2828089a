"""The snapshot: search, diversity and sampling."""

import asyncio
import logging
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rectifier_core.embedding import Vectors, unit
from rectifier_core.indicator import Indicator, IndicatorId, Mode, Status
from rectifier_core.snapshot import Hit, Ranking, Snapshot, diversify
from rectifier_core.store import StoredIndicator
from rectifier_core.testing.embedding import HashedEmbedder
from tests.support.embedding import axis, between, stored

RANKINGS: tuple[Ranking, ...] = ("hybrid", "trigger", "meaning", "words")
EMPTY = np.empty((0, 4), dtype=np.float32)


def made(
    name: str,
    *,
    trigger: Vectors,
    definition: Vectors | None = None,
    text: str = "nothing",
    pool: str = "math",
    tenant: str = "default",
    status: Status = Status.ACTIVE,
    mode: Mode = Mode.ENFORCE,
) -> StoredIndicator:
    indicator = Indicator(
        IndicatorId(name), pool, name, text, status=status, mode=mode, tenant=tenant
    )
    return StoredIndicator(indicator, trigger, trigger if definition is None else definition)


def snapshot(*entries: StoredIndicator) -> Snapshot:
    return Snapshot.build(entries, dimension=4)


def names(hits: list[Hit]) -> list[str]:
    return [hit.indicator.name for hit in hits]


async def many(count: int, *, seed: int = 1) -> list[StoredIndicator]:
    """Return indicators of random words, in three pools of two tenants."""
    rng = random.Random(seed)
    vocabulary = [f"word{chr(97 + a)}{chr(97 + b)}" for a in range(12) for b in range(12)]
    indicators = [
        Indicator(
            IndicatorId(f"{number:05d}"),
            pool=("math", "code", "team")[number % 3],
            name=f"NAME_{number}",
            definition=" ".join(rng.choices(vocabulary, k=12)),
            trigger_condition=" ".join(rng.choices(vocabulary, k=6)),
            tenant=("default", "other")[number % 2],
        )
        for number in range(count)
    ]
    return await stored(indicators, HashedEmbedder(4))


@pytest.mark.parametrize("ranking", RANKINGS)
def test_empty_snapshot_unknown_tenant_and_empty_pool_find_nothing(ranking: Ranking) -> None:
    full = snapshot(made("a", trigger=axis(0), text="angle"))
    query = axis(0)[None]
    assert not snapshot().search(query, "angle", tenant="default", limit=5, ranking=ranking)
    assert not full.search(query, "angle", tenant="nobody", limit=5, ranking=ranking)
    assert not full.search(query, "angle", tenant="default", pools=[], limit=5, ranking=ranking)
    assert not full.search(query, "angle", tenant="default", pools=["x"], limit=5, ranking=ranking)
    assert not full.search(query, "angle", tenant="default", limit=0, ranking=ranking)
    assert not snapshot().sample(1, tenant="default", limit=5)


def test_trigger_ranking_is_the_cosine_with_trigger_vectors_alone() -> None:
    hits = snapshot(
        made("far", trigger=between(0.1), definition=axis(0), text="angle"),
        made("near", trigger=between(0.9), definition=axis(3)),
    ).search(axis(0)[None], "angle", tenant="default", limit=5, ranking="trigger")
    assert names(hits) == ["near", "far"]
    assert [hit.score for hit in hits] == pytest.approx([0.9, 0.1], abs=1e-6)


def test_words_alone_find_only_what_shares_one() -> None:
    full = snapshot(
        made("a", trigger=axis(0), text="a triangle and its angles"),
        made("b", trigger=axis(0), text="angle angle of a triangle"),
        made("c", trigger=axis(0), text="a loop"),
    )
    for vectors in (None, EMPTY, axis(0)[None]):
        hits = full.search(vectors, "TRIANGLES", tenant="default", limit=5, ranking="words")
        assert set(names(hits)) == {"a", "b"}
    assert not full.search(None, "", tenant="default", limit=5, ranking="words")
    assert not full.search(None, "unheard", tenant="default", limit=5, ranking="words")


def test_without_vectors_the_hybrid_falls_back_to_words() -> None:
    full = snapshot(made("a", trigger=axis(0), text="angle"), made("b", trigger=axis(0)))
    for vectors in (None, EMPTY):
        assert names(full.search(vectors, "angle", tenant="default", limit=5)) == ["a"]


def test_hybrid_prefers_what_several_rankings_agree_on() -> None:
    hits = snapshot(
        made("words", trigger=axis(2), text="angle"),
        made("both", trigger=between(0.9), text="an angle among many other different things"),
        made("meaning", trigger=axis(0)),
    ).search(axis(0)[None], "angle", tenant="default", limit=5)
    assert names(hits)[0] == "both"


def test_fusion_sums_weighted_reciprocal_ranks() -> None:
    hits = snapshot(
        made("a", trigger=axis(0), definition=between(0.5), text="angle"),
        made("b", trigger=between(0.5), definition=axis(0)),
    ).search(axis(0)[None], "angle", tenant="default", limit=5)
    scores = {hit.indicator.name: hit.score for hit in hits}
    assert scores["a"] == pytest.approx(0.5 / 61 + 1 / 62 + 1 / 61, rel=1e-5)
    assert scores["b"] == pytest.approx(0.5 / 62 + 1 / 61, rel=1e-5)


def test_best_piece_counts_in_each_ranking() -> None:
    full = snapshot(
        made("one", trigger=axis(0)), made("two", trigger=axis(1)), made("none", trigger=axis(2))
    )
    hits = full.search(np.stack([axis(0), axis(1)]), "", tenant="default", limit=2)
    assert names(hits) == ["one", "two"]
    assert hits[0].score == hits[1].score


@pytest.mark.parametrize("ranking", RANKINGS)
def test_equal_ones_come_by_id_whatever_the_order_of_building(ranking: Ranking) -> None:
    entries = [made(f"i{n}", trigger=axis(0), text="angle", pool=f"p{-n % 3}") for n in range(9)]
    for seed in range(3):
        random.Random(seed).shuffle(entries)
        hits = snapshot(*entries).search(
            axis(0)[None], "angle", tenant="default", limit=9, ranking=ranking
        )
        if ranking in {"trigger", "words"}:
            assert names(hits) == sorted(names(hits))
        assert names(hits) == names(
            snapshot(*reversed(entries)).search(
                axis(0)[None], "angle", tenant="default", limit=9, ranking=ranking
            )
        )


@pytest.mark.parametrize("ranking", RANKINGS)
async def test_filters_rank_within_what_they_leave(ranking: Ranking) -> None:
    entries = await many(900)
    query = unit(np.ones((2, 4)) * [[1, 2, -1, 0.5], [0, -1, 1, 1]])
    text = "wordaa wordbb wordcc wordad wordlf"
    full = Snapshot.build(entries, dimension=4)
    mine = Snapshot.build([e for e in entries if e.indicator.tenant == "other"], dimension=4)
    for pools in (None, ["code"], ["math", "team"], ["team", "math", "team", "no"]):
        found = full.search(query, text, tenant="other", pools=pools, limit=30, ranking=ranking)
        again = mine.search(query, text, tenant="other", pools=pools, limit=30, ranking=ranking)
        assert found == again
        assert len(found) == 30 or ranking == "words"
        assert all(hit.indicator.tenant == "other" for hit in found)
        assert all(pools is None or hit.indicator.pool in pools for hit in found)
        # Nothing outside the filter takes a place: it is the unfiltered order of plain scores.
        if ranking in {"trigger", "words"}:
            whole = full.search(query, text, tenant="other", limit=900, ranking=ranking)
            kept = [h for h in whole if pools is None or h.indicator.pool in pools]
            assert found == kept[:30]


def test_status_and_mode_are_filters() -> None:
    full = snapshot(
        made("live", trigger=axis(0)),
        made("shadow", trigger=axis(0), mode=Mode.SHADOW),
        made("old", trigger=axis(0), status=Status.RETIRED),
    )

    def found(**filters: Status | Mode | None) -> set[str]:
        hits = full.search(axis(0)[None], "", tenant="default", limit=9, **filters)  # type: ignore[arg-type]
        assert {i.name for i in full.among(tenant="default", **filters)} == set(names(hits))  # type: ignore[arg-type]
        return set(names(hits))

    assert found() == {"live", "shadow"}
    assert found(mode=Mode.SHADOW) == {"shadow"}
    assert found(status=Status.RETIRED) == {"old"}
    assert found(status=None) == {"live", "shadow", "old"}


async def test_score_of_the_first_hits_does_not_depend_on_the_limit() -> None:
    full = Snapshot.build(await many(1_000), dimension=4)
    query = unit(np.array([[1.0, 2.0, -1.0, 0.5]]))
    few = full.search(query, "wordaa wordbb", tenant="default", limit=5)
    assert few == full.search(query, "wordaa wordbb", tenant="default", limit=100)[:5]
    assert len(full.search(query, "wordaa", tenant="default", limit=400)) == 400


def test_later_entry_of_an_id_replaces_the_earlier() -> None:
    full = snapshot(made("a", trigger=axis(1)), made("a", trigger=axis(0)))
    assert len(full) == 1
    (hit,) = full.search(axis(0)[None], "", tenant="default", limit=5, ranking="trigger")
    assert hit.score == pytest.approx(1)


def test_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="not 4 long"):
        snapshot(made("a", trigger=axis(0, dimension=5)))


def test_get_returns_what_exists_in_order() -> None:
    full = snapshot(
        made("a", trigger=axis(0)),
        made("b", trigger=axis(0)),
        made("c", trigger=axis(0), tenant="t"),
    )
    ids = [IndicatorId(name) for name in ("b", "x", "c", "a")]
    assert [i.name for i in full.get(ids, tenant="default")] == ["b", "a"]
    assert full.get(ids, tenant="nobody") == []


def test_indicators_without_words_can_be_searched() -> None:
    full = snapshot(made("1", trigger=axis(0), text="2 + 2"), made("3", trigger=axis(1), text="?"))
    assert len(full.search(axis(0)[None], "angle", tenant="default", limit=5)) == 2


def test_text_in_another_script_is_found_by_its_words() -> None:
    full = snapshot(
        made("a", trigger=axis(0), text="単位の変換を忘れる"),
        made("b", trigger=axis(0), text="図形の面積を間違える"),
    )
    hits = full.search(None, "この問題では単位を変換する", tenant="default", limit=1)
    assert names(hits) == ["a"]


def test_query_of_any_kind_is_survived() -> None:
    full = snapshot(made("a", trigger=axis(0), text="angle"), made("b", trigger=axis(1)))
    for text in ("\x00", "\ud800", "a" * 300_000, "\\", "angle " * 50_000, "\u202e\ufdfa"):
        assert len(full.search(axis(0)[None], text, tenant="default", limit=5)) == 2


async def test_snapshot_is_built_in_a_thread_without_a_word(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    entries = await many(50)
    with caplog.at_level(logging.DEBUG):
        full = await asyncio.to_thread(Snapshot.build, iter(entries), dimension=4)
        full.search(axis(0)[None], "wordaa", tenant="default", limit=5)
        full.search(None, "", tenant="default", limit=5)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("bm25s")]


def hit(name: str, score: float, definition: Vectors) -> Hit:
    return Hit(made(name, trigger=definition).indicator, score, definition)


def test_diversify_passes_over_near_repeats() -> None:
    hits = [
        hit("first", 1.0, axis(0)),
        hit("repeat", 0.9, between(0.99)),
        hit("other", 0.8, axis(1)),
        hit("worst", 0.0, axis(2)),
    ]
    assert names(diversify(hits, keep=2)) == ["first", "other"]
    assert names(diversify(hits, keep=2, lam=1.0)) == ["first", "repeat"]
    assert names(diversify(hits, keep=9, lam=1.0)) == names(hits)


def test_diversify_is_the_formula_of_mmr() -> None:
    rng = np.random.default_rng(3)
    vectors = unit(rng.standard_normal((12, 4)))
    hits = [hit(f"{n:02d}", 5.0 - n * 0.37, vectors[n]) for n in range(12)]
    chosen: list[int] = []
    for _ in range(5):
        best, value = -1, -9.0
        for n in set(range(12)) - set(chosen):
            alike = max((float(vectors[n] @ vectors[c]) for c in chosen), default=0.0)
            gain = 0.7 * (1 - n / 11) - 0.3 * alike
            if gain > value:
                best, value = n, gain
        chosen.append(best)
    assert names(diversify(hits, keep=5)) == [f"{n:02d}" for n in chosen]


def test_diversify_takes_few_hits_and_equal_scores() -> None:
    assert diversify([], keep=5) == []
    one = hit("a", 0.5, axis(0))
    assert diversify([one], keep=5) == [one]
    assert diversify([one], keep=0) == []
    equal = [hit("a", 0.5, axis(0)), hit("b", 0.5, axis(0)), hit("c", 0.5, axis(1))]
    assert names(diversify(equal, keep=3)) == ["a", "c", "b"]


def test_sample_is_uniform_repeatable_and_keeps_to_the_filters() -> None:
    entries = [made(f"i{n}", trigger=axis(0), pool=f"p{n % 2}") for n in range(10)]
    entries.append(made("old", trigger=axis(0), pool="p0", status=Status.RETIRED))
    full = snapshot(*entries)
    drawn = Counter(
        hit.indicator.name
        for seed in range(2_000)
        for hit in full.sample(seed, tenant="default", pools=["p0"], limit=2)
    )
    assert set(drawn) == {"i0", "i2", "i4", "i6", "i8"}
    assert all(700 < count < 900 for count in drawn.values())
    assert full.sample("s", tenant="default", limit=4) == full.sample(
        "s", tenant="default", limit=4
    )
    assert len({h.indicator.id for h in full.sample(b"s", tenant="default", limit=99)}) == 10
    assert full.sample(1, tenant="nobody", limit=3) == []


def test_snapshot_keeps_its_own_vectors() -> None:
    trigger = axis(0)
    full = snapshot(replace(made("a", trigger=trigger), definition=axis(0)))
    trigger[:] = 0
    (hit,) = full.search(axis(0)[None], "", tenant="default", limit=1, ranking="trigger")
    assert hit.score == pytest.approx(1)
    with pytest.raises(ValueError, match="read-only"):
        hit.definition[0] = 5
