"""The judge: puts a message and indicators before a chat model and holds it to its answer.

Nothing the model says is taken on trust. A ballot is read strictly towards clean (`ballot`), an
accusation needs a quote, a correction and an impact (`evidence`), and an indicator without a
verdict stays undecided: it is never counted as clean.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rectifier.ballot import Accusation, Ballot, read_ballot
from rectifier.evidence import Problem, Quote, Sources, has_impact, is_concrete, is_nothing
from rectifier.gate import gate
from rectifier.general import is_general
from rectifier.policy import Policy
from rectifier.verdict import Degraded, Finding, Judgement, Unsupported, Verdict
from rectifier_core.chat import CallKind, ChatModel, ChatReply, ChatRequest, Usage
from rectifier_core.deadline import Deadline
from rectifier_core.errors import ChatError
from rectifier_core.indicator import Indicator, IndicatorId, Mode
from rectifier_core.isolation import encoded, plain, sealed, visible
from rectifier_core.prompts import Prompt, prompt
from rectifier_core.reply import Json, as_number, as_text, parse, with_latex

CALLS = 3  # model calls a verdict at most, the repair call among them
_FIELD_LIMIT = 2_000  # characters of one text in a finding
_TEXT_LIMIT = 2_000  # characters of one text of an indicator in a prompt
_QUERY_LIMIT = 2_000  # characters of a search query made by the model

# A JSON Schema document nests without bound, which no type of ours describes.
_Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is judged.

    Attributes:
        task: What the team was asked.
        role: The role specification of the message's agent.
        text: The message.
        context: Earlier messages, newest last.
        attempt: Which attempt at the message it is, from 0.
    """

    task: str
    role: str
    text: str
    context: tuple[str, ...] = ()
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """A search query made by the model.

    Attributes:
        text: ``Problem Scenario: a, b. Agent Action: c, d``; an unreadable reply itself; or task
            and message where there is no reply.
        usage: Cost.
        degraded: What was missing.
    """

    text: str
    usage: Usage = Usage()
    degraded: tuple[Degraded, ...] = ()

    @property
    def is_readable(self) -> bool:
        """True where the text holds the model's keywords."""
        return not self.degraded


@dataclass(frozen=True, slots=True)
class Selection:
    """The indicators that the model chose to audit.

    Attributes:
        indicators: Best first; the nearest where it chose none.
        usage: Cost.
        degraded: What was missing.
    """

    indicators: tuple[Indicator, ...]
    usage: Usage = Usage()
    degraded: tuple[Degraded, ...] = ()


class Judge:
    """Asks one chat model; keeps no state."""

    def __init__(self, chat: ChatModel) -> None:
        """Ask ``chat``."""
        self._chat = chat

    async def judge(
        self,
        question: Question,
        indicators: Sequence[Indicator],
        *,
        policy: Policy,
        again: Collection[IndicatorId] = (),
        deadline: Deadline,
    ) -> Judgement:
        """Return what the model says of ``question``, each indicator asked at most once.

        Args:
            question: The message and what surrounds it.
            indicators: Those to ask; with ``policy.audit`` ``select`` those to choose from, a
                general indicator among them where it may serve.
            policy: How to ask.
            again: Indicators that were violated before: with ``select`` they must be judged, on
                top of ``policy.k_act``, as must those in shadow.
            deadline: When an answer is due.

        Raises:
            DeadlineError: It passed. A model that fails otherwise leaves indicators undecided.
        """
        if policy.audit == "none" or not indicators:
            return Judgement()
        sources = Sources(question.text, question.task)
        if policy.audit == "single":
            panels = [_Panel("single", (one,), sources, policy.tau) for one in indicators]
            return _joined(await self._each(question, panels, deadline))
        panel = _Panel(policy.audit, _shuffled(indicators, question.text), sources, policy.tau)
        if policy.audit == "select":
            required = frozenset(
                number
                for number, one in enumerate(panel.lineup, 1)
                if one.id in again or one.mode is Mode.SHADOW
            )
            panel = replace(panel, required=required, limit=policy.k_act)
        return await self._ask(question, panel, deadline)

    async def keywords(self, question: Question, *, deadline: Deadline) -> KeywordQuery:
        """Return the query of the paper's retrieval, from one model call.

        Raises:
            DeadlineError: It passed.
        """
        asked = prompt(
            "keywords",
            task=encoded(question.task),
            role=encoded(question.role),
            message=sealed(question.text),
        )
        fallback = f"{question.task}\n{question.text}"
        try:
            reply = await self._complete("keywords", asked, _KEYWORDS_SCHEMA, deadline)
        except ChatError as error:
            unavailable = (Degraded.JUDGE_UNAVAILABLE,)
            return KeywordQuery(fallback, Usage(calls=error.calls), unavailable)
        lists = None if reply.is_cut or reply.is_refused else _keyword_lists(reply.text)
        if lists:
            scenario, action = (", ".join(words) for words in lists)
            text = f"Problem Scenario: {scenario}. Agent Action: {action}"
            return KeywordQuery(text[:_QUERY_LIMIT], reply.usage)
        text = plain(reply.text[:_QUERY_LIMIT]) or fallback
        return KeywordQuery(text, reply.usage, (Degraded.KEYWORDS_UNREADABLE,))

    async def rerank(
        self, question: Question, candidates: Sequence[Indicator], k_act: int, *, deadline: Deadline
    ) -> Selection:
        """Return at most ``k_act`` of ``candidates`` (nearest first), as the model chooses.

        Raises:
            DeadlineError: It passed.
        """
        nearest = tuple(candidates[:k_act])
        if not nearest:
            return Selection(())
        lineup = _shuffled(candidates, question.text)
        asked = prompt("rerank", limit=str(k_act), **_fields(question, lineup, "batch"))
        try:
            reply = await self._complete("rerank", asked, _RERANK_SCHEMA, deadline)
        except ChatError as error:
            return Selection(nearest, Usage(calls=error.calls), (Degraded.JUDGE_UNAVAILABLE,))
        numbers = None if reply.is_cut or reply.is_refused else _chosen(reply.text, lineup)
        if numbers is None:
            return Selection(nearest, reply.usage, (Degraded.RERANK_UNREADABLE,))
        chosen = tuple(lineup[number - 1] for number in numbers[:k_act])
        return Selection(chosen or nearest, reply.usage)

    async def _each(
        self, question: Question, panels: Sequence["_Panel"], deadline: Deadline
    ) -> list[Judgement]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._ask(question, panel, deadline)) for panel in panels
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return [task.result() for task in tasks]

    async def _ask(self, question: Question, panel: "_Panel", deadline: Deadline) -> Judgement:
        """Ask once, and once more where that can still bring a verdict."""
        asked = panel.prompt(question)
        try:
            reply = await self._complete("judge", asked, panel.schema, deadline)
        except ChatError as error:
            return panel.nothing(Usage(calls=error.calls), Degraded.JUDGE_UNAVAILABLE)
        ballot = panel.read(reply, question.text)
        judgement = replace(panel.judgement(ballot), usage=reply.usage, model=reply.model)
        fault = panel.fault(ballot, judgement)
        calls_left = CALLS - reply.usage.calls
        if not fault or reply.is_refused or calls_left < 1:
            return judgement
        mended = prompt("repair", system=asked.system, user=asked.user, fault=fault)
        try:
            repair = await self._complete("repair", mended, panel.schema, deadline, calls_left)
        except ChatError as error:
            return replace(
                judgement,
                usage=judgement.usage + Usage(calls=error.calls),
                degraded=(*judgement.degraded, Degraded.JUDGE_UNAVAILABLE),
            )
        second = panel.judgement(panel.read(repair, question.text))
        return replace(
            _reconciled(judgement, second),
            usage=judgement.usage + repair.usage,
            model=repair.model,
        )

    async def _complete(
        self, kind: CallKind, asked: Prompt, schema: _Schema, deadline: Deadline, calls: int = CALLS
    ) -> ChatReply:
        request = ChatRequest(kind, asked.system, asked.user, schema, max_calls=calls)
        reply = await self._chat.complete(request, deadline=deadline)
        return replace(reply, model=reply.model or self._chat.model)


@dataclass(frozen=True, slots=True)
class _Panel:
    """The indicators of one call: numbered from 1, and how their verdicts are counted.

    Attributes:
        audit: The way of asking, which is the prompt's name.
        lineup: The indicators in the order in which they are numbered.
        sources: What may be quoted.
        tau: Pass threshold, to know when a repair cannot change the outcome.
        required: Numbers that must be judged where the model chooses.
        limit: How many it may choose on top of those; None: all must be judged.
    """

    audit: str
    lineup: tuple[Indicator, ...]
    sources: Sources
    tau: float
    required: frozenset[int] = frozenset()
    limit: int | None = None

    @property
    def schema(self) -> _Schema:
        return {"single": _SINGLE_SCHEMA, "applies": _APPLIES_SCHEMA}.get(
            self.audit, _BALLOT_SCHEMA
        )

    def prompt(self, question: Question) -> Prompt:
        fields = _fields(question, self.lineup, self.audit)
        if self.limit is None:
            return prompt(self.audit, **fields)
        numbers = ", ".join(str(number) for number in sorted(self.required))
        why = " (objected to before; see whether they are mended or answered)" * bool(
            question.attempt
        )
        on_top = f"\nJudge these in any case, besides{why}: {numbers}" if numbers else ""
        return prompt(self.audit, limit=str(self.limit), required=on_top, **fields)

    def read(self, reply: ChatReply, message: str) -> Ballot:
        if reply.is_refused:
            return Ballot(fault="it was refused")
        if reply.is_cut:
            return Ballot(fault="it was cut off at its length limit; use shorter strings")
        names = [indicator.name for indicator in self.lineup]
        specific = [n for n, one in enumerate(self.lineup, 1) if not is_general(one)] or [1]
        only = specific[0] if len(specific) == 1 else None
        return self._within_limit(read_ballot(reply.text, names=names, only=only, message=message))

    def judgement(self, ballot: Ballot) -> Judgement:
        findings: list[Finding] = []
        unsupported: list[Unsupported] = []
        for accusation in ballot.accused:
            checked = self._checked(accusation)
            if isinstance(checked, Finding):
                findings.append(checked)
            else:
                unsupported.append(checked)
        findings += [self._clean(number) for number in ballot.clean]
        decided = {finding.indicator_id for finding in findings}
        undecided = tuple(one.id for one in self._asked(ballot) if one.id not in decided)
        judgement = Judgement(tuple(findings), undecided, tuple(unsupported))
        return replace(judgement, degraded=_degraded(judgement, is_blank=ballot.is_blank))

    def nothing(self, usage: Usage, reason: Degraded) -> Judgement:
        undecided = tuple(indicator.id for indicator in self.lineup)
        return Judgement(undecided=undecided, usage=usage, degraded=(reason,))

    def fault(self, ballot: Ballot, judgement: Judgement) -> str:
        """Return what a repair call should mend; empty where it could not change the verdict."""
        missing = _unexplained(judgement)
        verdict, _ = gate(
            asked=len(judgement.findings) + len(judgement.undecided),
            violated=sum(finding.violated for finding in judgement.findings),
            undecided=len(judgement.undecided),
            tau=self.tau,
        )
        if not missing or verdict is not Verdict.INDETERMINATE:
            return ""
        numbers = [str(n) for n, one in enumerate(self.lineup, 1) if one.id in missing]
        return ballot.fault or f"it has no verdict on {', '.join(numbers)}"

    def _within_limit(self, ballot: Ballot) -> Ballot:
        """Drop what the model judged beyond its limit, clean verdicts only, and a needless general one."""
        if self.limit is None:
            return ballot
        general = {n for n, one in enumerate(self.lineup, 1) if is_general(one)}
        others = [n for n in ballot.clean if n not in general]
        if others or ballot.accused:
            ballot = replace(ballot, clean=tuple(others))
        taken = sum(accusation.number not in self.required for accusation in ballot.accused)
        free = [n for n in ballot.clean if n not in self.required][: max(0, self.limit - taken)]
        return replace(
            ballot, clean=tuple(n for n in ballot.clean if n in self.required or n in free)
        )

    def _asked(self, ballot: Ballot) -> Iterable[Indicator]:
        if self.limit is None or ballot.is_blank:
            return self.lineup
        named = {*ballot.clean, *ballot.void, *(a.number for a in ballot.accused), *self.required}
        return [one for number, one in enumerate(self.lineup, 1) if number in named]

    def _clean(self, number: int) -> Finding:
        indicator = self.lineup[number - 1]
        return Finding(indicator.id, indicator.name, violated=False)

    def _checked(self, accusation: Accusation) -> Finding | Unsupported:
        indicator = self.lineup[accusation.number - 1]
        quote = self.sources.find(accusation.evidence)
        problem = _problem(accusation, quote)
        if quote is None or problem:
            quoted = accusation.evidence[:_FIELD_LIMIT]
            return Unsupported(indicator.id, indicator.name, quoted, problem or "not_a_quote")
        return Finding(
            indicator.id,
            indicator.name,
            violated=True,
            evidence=quote.text[:_FIELD_LIMIT],
            evidence_in=quote.where,
            rationale=_cut(with_latex(_rationale(accusation)), _FIELD_LIMIT),
            suggestion=_cut(with_latex(accusation.correction), _FIELD_LIMIT),
        )


def _problem(accusation: Accusation, quote: Quote | None) -> Problem | None:
    if quote is None:
        return "no_quote" if is_nothing(accusation.evidence) else "not_a_quote"
    if not is_concrete(accusation.correction, evidence=accusation.evidence):
        return "no_correction"
    return None if has_impact(accusation.impact) else "no_impact"


def _reconciled(first: Judgement, second: Judgement) -> Judgement:
    """Return the second judgement, but clear nothing that the first found violated."""
    if not second.findings and not second.unsupported:
        return first
    accused = {finding.indicator_id: finding for finding in first.findings if finding.violated}
    named = {finding.indicator_id for finding in second.findings}
    kept = [f for f in second.findings if f.violated or f.indicator_id not in accused]
    kept += [finding for id_, finding in accused.items() if id_ not in named]
    decided = {finding.indicator_id for finding in kept}
    open_ids = dict.fromkeys((*second.undecided, *accused))
    undecided = tuple(id_ for id_ in open_ids if id_ not in decided)
    joined = Judgement(tuple(kept), undecided, second.unsupported)
    return replace(joined, degraded=_degraded(joined, is_blank=False))


def _joined(judgements: Sequence[Judgement]) -> Judgement:
    return Judgement(
        findings=tuple(finding for one in judgements for finding in one.findings),
        undecided=tuple(id_ for one in judgements for id_ in one.undecided),
        unsupported=tuple(entry for one in judgements for entry in one.unsupported),
        usage=sum((one.usage for one in judgements), Usage()),
        model=next((one.model for one in judgements if one.model), ""),
        degraded=tuple(dict.fromkeys(reason for one in judgements for reason in one.degraded)),
    )


def _unexplained(judgement: Judgement) -> set[str]:
    """Return the undecided indicators that were not accused in vain."""
    return set(judgement.undecided) - {entry.indicator_id for entry in judgement.unsupported}


def _degraded(judgement: Judgement, *, is_blank: bool) -> tuple[Degraded, ...]:
    if is_blank:
        return (Degraded.JUDGE_UNREADABLE,)
    return (Degraded.JUDGE_INCOMPLETE,) if _unexplained(judgement) else ()


def _rationale(accusation: Accusation) -> str:
    if is_nothing(accusation.analysis):
        return accusation.impact
    return f"{accusation.analysis} (impact: {accusation.impact})"


def _shuffled(indicators: Sequence[Indicator], seed: str) -> tuple[Indicator, ...]:
    """Return the indicators in an order that the message decides, general ones last."""
    salt = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()

    def place(indicator: Indicator) -> tuple[bool, bytes]:
        return is_general(indicator), hashlib.sha256(salt + indicator.id.encode()).digest()

    return tuple(sorted(indicators, key=place))


def _fields(question: Question, lineup: Sequence[Indicator], audit: str) -> dict[str, str]:
    context = f"\nEarlier messages: {encoded(list(question.context))}" if question.context else ""
    return {
        "task": encoded(question.task),
        "role": encoded(question.role),
        "context": context,
        "indicators": _listed(lineup, audit),
        "message": sealed(question.text),
    }


def _listed(lineup: Sequence[Indicator], audit: str) -> str:
    if audit == "single":
        return _area(lineup[0])
    return "\n".join(f"{n}. {_described(one, audit)}" for n, one in enumerate(lineup, 1))


def _described(indicator: Indicator, audit: str) -> str:
    parts = [f"{indicator.name}: {indicator.definition}", indicator.trigger_condition]
    if audit != "select":
        parts.append(indicator.risk_alert)
    text = " | ".join(_cut(visible(part), _TEXT_LIMIT) for part in parts if part)
    return (
        f"{text} (Only if no other applies.)"
        if audit == "select" and is_general(indicator)
        else text
    )


def _area(indicator: Indicator) -> str:
    """Return what the first release shows of an indicator; the definition serves where a part lacks."""
    trigger = indicator.trigger_condition or indicator.definition
    alert = indicator.risk_alert or indicator.definition
    return "\n".join(_cut(visible(part), _TEXT_LIMIT) for part in dict.fromkeys((trigger, alert)))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 4]} ..."


def _keyword_lists(text: str) -> tuple[list[str], list[str]] | None:
    """Return scenario and action of the last value that holds two lists of words."""
    for value in reversed(parse(text).values):
        content = value.content
        if not isinstance(content, dict | list):
            continue
        entries = list(content.values()) if isinstance(content, dict) else content
        lists = [_words(entry) for entry in entries if isinstance(entry, list)]
        if len(lists) == 2 and all(lists):
            return lists[0], lists[1]
    return None


def _words(entry: list[Json]) -> list[str]:
    return [word for item in entry if (word := plain(as_text(item)))]


def _chosen(text: str, lineup: Sequence[Indicator]) -> list[int] | None:
    """Return the numbers in the last value that is a list or holds one; names are numbers too."""
    names = [indicator.name for indicator in lineup]
    for value in reversed(parse(text).values):
        content = value.content
        entries = list(content.values()) if isinstance(content, dict) else [content]
        named = next((entry for entry in entries if isinstance(entry, list)), None)
        if named is None:
            continue
        numbers = [
            names.index(item) + 1 if isinstance(item, str) and item in names else as_number(item)
            for item in named
        ]
        return list(dict.fromkeys(n for n in numbers if n and n <= len(lineup)))
    return None


_TEXT: _Schema = {"type": "string"}
_NUMBERS: _Schema = {"type": "array", "items": {"type": "integer"}}
_WORDS: _Schema = {"type": "array", "items": _TEXT}


def _object(**properties: _Schema) -> _Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_ACCUSATIONS: _Schema = {
    "type": "array",
    "items": _object(id={"type": "integer"}, evidence=_TEXT, correction=_TEXT, impact=_TEXT),
}
_BALLOT_SCHEMA = _object(clean=_NUMBERS, violated=_ACCUSATIONS)
_APPLIES_SCHEMA = _object(not_applying=_NUMBERS, clean=_NUMBERS, violated=_ACCUSATIONS)
_SINGLE_SCHEMA = _object(
    evidence_quote=_TEXT,
    analysis=_TEXT,
    suggestion=_TEXT,
    impact_assessment=_TEXT,
    is_flawed={"type": "boolean"},
)
_KEYWORDS_SCHEMA = _object(problem_scenario=_WORDS, agent_action=_WORDS)
_RERANK_SCHEMA = _object(ids=_NUMBERS)
