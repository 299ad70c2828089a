"""What tests of the judge ask, and how they read its prompt."""

import json
import re
from collections.abc import Collection, Sequence

from rectifier.general import general_for
from rectifier.judge import Judge, Question
from rectifier.policy import Policy
from rectifier.verdict import Judgement
from rectifier_core.chat import ChatRequest
from rectifier_core.deadline import Deadline
from rectifier_core.indicator import Indicator, IndicatorId
from rectifier_core.testing.chat import Line, ScriptedChat

QUESTION = Question(
    task="A path is 3 km long and is extended by 200 m. How long is it in metres?",
    role="Math Solver",
    text="3 km + 200 m = 203 km, so the answer is 203.",
)
FAST = Policy("fast", mmr_k=10, select="same_call", audit="select", tau=0.6)
BATCH = Policy("paper-v1", k_cand=5, audit="batch")
SINGLE = Policy("reference", k_cand=5, audit="single")
APPLIES = Policy("random", retrieval="random", audit="applies")
GENERAL = general_for(["math"], QUESTION.task)


def indicators(count: int) -> list[Indicator]:
    """Return indicators ``i0``, ``i1``, ... with names ``NAME_0``, ..."""
    return [
        Indicator(
            IndicatorId(f"i{n}"),
            "math",
            f"NAME_{n}",
            f"Definition number {n}.",
            f"When trigger {n} applies.",
            f"Check alert {n}.",
        )
        for n in range(count)
    ]


async def judged(
    *script: Line,
    asked: Sequence[Indicator],
    policy: Policy = BATCH,
    question: Question = QUESTION,
    again: Collection[IndicatorId] = (),
    chat: ScriptedChat | None = None,
) -> Judgement:
    """Return the judgement of a judge that follows ``script``."""
    judge = Judge(chat or ScriptedChat.of(*script))
    return await judge.judge(
        question, asked, policy=policy, again=again, deadline=Deadline.after(10)
    )


def numbers(request: ChatRequest) -> dict[str, int]:
    """Return which number each indicator's name was given; the general one is ``general``."""
    found = re.findall(r"^(\d+)\. (NAME_\d+|Fatal)", request.user, re.MULTILINE)
    return {name if name != "Fatal" else "general": int(number) for number, name in found}


def ballot(*, clean: Sequence[object] = (), violated: Sequence[object] = ()) -> str:
    """Return a reply; a bare number in ``violated`` becomes a well supported accusation."""
    return json.dumps(
        {
            "clean": list(clean),
            "violated": [accusation(n) if isinstance(n, int) else n for n in violated],
        }
    )


def accusation(number: object, **changes: object) -> dict[str, object]:
    """Return an accusation with everything that it needs."""
    return {
        "id": number,
        "evidence": "3 km + 200 m = 203 km",
        "correction": "3000 m + 200 m = 3200 m",
        "impact": "the answer becomes 3200",
    } | changes
