"""The message schema: a JSON Schema that a message must satisfy.

Schemas come from callers, so their work is bounded. Nothing is fetched: references stay inside the
document. Every keyword is counted, and a message that costs too much is reported as not checked.
``pattern`` runs on an engine that is linear in the text (the Rust one inside pydantic), which knows
neither look-around nor back-references. ``patternProperties``, the ``unevaluated*`` keywords and
dynamic references are refused: they cannot be bounded that way.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import islice
from typing import Annotated, Any

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    extend,
)
from pydantic import StringConstraints, TypeAdapter
from pydantic import ValidationError as MismatchError
from pydantic_core import SchemaError as PatternError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from rectifier.checks.fences import blocks
from rectifier.verdict import Finding
from rectifier_core.errors import InputError

CHECK_ID = "check:schema"
FIELD = "message_schema"
MAX_SCHEMA = 32 * 1024  # characters as JSON
MAX_DEPTH = 32
MAX_KEYWORDS = 600
REMEMBERED = 64  # schemas
MAX_PATTERN = 256  # characters
MAX_REPEATS = 1_000  # the product of a pattern's counted repetitions
MAX_MATCHED = 16 * 1024  # characters of one string that a pattern is run on
MAX_STEPS = 20_000  # keywords times instances
MAX_FINDINGS = 3
MAX_SHOWN = 200  # characters of a quote or of an expectation

REFUSED = frozenset(
    {
        "patternProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    }
)
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_PLAIN = frozenset({"enum", "const", "default", "examples"})
_DRAFTS: dict[str, type[Validator]] = {
    str(draft.META_SCHEMA["$schema"]).rstrip("#"): draft
    for draft in (
        Draft4Validator,
        Draft6Validator,
        Draft7Validator,
        Draft201909Validator,
        Draft202012Validator,
    )
}
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")

# Values are plain JSON, which has no narrower type than Any.
Json = Any
Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class _ExhaustedError(Exception):
    """The work for one message is spent."""


@dataclass(slots=True)
class _Budget:
    """The work that one message may cost.

    Attributes:
        steps: How many are left.
        sizes: Characters of each value of the message, by identity.
    """

    steps: int = MAX_STEPS
    sizes: dict[int, int] = field(default_factory=dict)

    def spend(self, steps: int) -> None:
        """Take ``steps``.

        Raises:
            _ExhaustedError: So many are not left.
        """
        self.steps -= steps
        if self.steps < 0:
            raise _ExhaustedError

    def size(self, value: Json) -> int:
        """Return the characters of ``value``."""
        return len(value) if isinstance(value, str) else self.sizes.get(id(value), 1)


_BUDGET: ContextVar[_Budget] = ContextVar("_BUDGET")


def check_schema_document(schema: Json) -> None:
    """Check that ``schema`` is a JSON Schema that messages can be held to in bounded time.

    Args:
        schema: Plain JSON: at most 32,768 characters, 32 levels, drafts 4 to 2020-12.

    Raises:
        InputError: It is not; the field is ``message_schema``.
    """
    if not isinstance(schema, Mapping):
        raise _refused("is not an object")
    if _depth(schema) > MAX_DEPTH:
        raise _refused(f"nests deeper than {MAX_DEPTH} levels")
    try:
        document = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise _refused("is not plain JSON") from exc
    if len(document) > MAX_SCHEMA:
        raise _refused(f"is longer than {MAX_SCHEMA} characters")
    _check_document(document)


@lru_cache(maxsize=REMEMBERED)
def _check_document(document: str) -> None:
    """Check a schema that is small enough; a run asks with the same one again and again."""
    schema: dict[str, Json] = json.loads(document)
    draft = _draft(schema)
    for count, (keyword, value) in enumerate(_keywords(schema), 1):
        if count > MAX_KEYWORDS:
            raise _refused(f"has more than {MAX_KEYWORDS} keywords")
        _check_keyword(keyword, value)
    try:
        draft.check_schema(schema, format_checker=FormatChecker(formats=()))  # type: ignore[call-arg] # the protocol is behind
    except SchemaError as exc:
        raise _refused(f"is not valid at {exc.json_path}: {exc.message[:MAX_SHOWN]}") from exc
    except RecursionError as exc:
        raise _refused("is too deep") from exc
    _check_references(schema)


def schema_findings(text: str, schema: Mapping[str, Json]) -> tuple[list[Finding], bool]:
    """Return where ``text`` does not satisfy ``schema``, and whether that took too long to tell."""
    source = _json_source(text)
    try:
        value = json.loads(source, parse_float=_number, parse_constant=_no_constant)
    except RecursionError:
        return [_finding(_start(text), "$", "less nesting", "The JSON nests too deep.")], False
    except ValueError as exc:
        reason = str(exc)[:MAX_SHOWN]
        correction = "one JSON value and nothing else, bare or in one code fence"
        return [
            _finding(_start(text), "$", correction, f"The message is not JSON: {reason}.")
        ], False
    try:
        errors = _errors(value, schema)
    except (_ExhaustedError, RecursionError, ArithmeticError, Unresolvable):
        return [], True
    return [_error_finding(error, source) for error in errors], False


def _refused(problem: str) -> InputError:
    return InputError(f"the message schema {problem}", field=FIELD)


def _depth(value: Json) -> int:
    """Return how deep ``value`` nests, at most one more than is allowed."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for parent in level
            if isinstance(parent, Mapping | list)
            for child in (parent.values() if isinstance(parent, Mapping) else parent)
        ]
    return depth


def _draft(schema: Mapping[str, Json]) -> type[Validator]:
    name = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    draft = _DRAFTS.get(name.rstrip("#")) if isinstance(name, str) else None
    if draft is None:
        raise _refused("names an unknown $schema")
    return draft


def _keywords(schema: Json) -> Iterator[tuple[str, Json]]:
    """Yield the keywords of ``schema`` and of the schemas in it."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        yield keyword, value
        if keyword in _NAMED and isinstance(value, Mapping):
            for named in value.values():
                yield from _keywords(named)
        elif keyword not in _PLAIN:
            yield from _keywords(value)


def _check_keyword(keyword: str, value: Json) -> None:
    if keyword in REFUSED:
        raise _refused(f"uses {keyword}, which is not supported")
    if keyword == "$ref" and isinstance(value, str) and not value.startswith("#"):
        raise _refused("refers to another document; only references inside it are followed")
    if keyword == "pattern" and isinstance(value, str):
        _check_pattern(value)


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise _refused(f"has a pattern longer than {MAX_PATTERN} characters")
    repeats = math.prod(max(1, int((m[2] or m[1])[:9])) for m in _REPEAT.finditer(pattern))
    if repeats > MAX_REPEATS:
        raise _refused("has a pattern that repeats too often")
    try:
        _matcher(pattern)
    except (PatternError, ValueError) as exc:
        raise _refused(
            f"has a pattern that is not supported (no look-around, no back-references): {pattern!r}"
        ) from exc


def _check_references(schema: Mapping[str, Json]) -> None:
    references = {v for k, v in _keywords(schema) if k == "$ref" and isinstance(v, str)}
    if not references:
        return
    names = [k for k, v in _keywords(schema) if k in {"$id", "id"} and isinstance(v, str)]
    if len(names) > len(schema.keys() & {"$id", "id"}):
        raise _refused("has references and an $id below its root")
    specification = specification_with(_draft(schema).META_SCHEMA["$schema"])
    resource = specification.create_resource(dict(schema))
    uri = resource.id() or ""
    registry: Registry[Json] = Registry().with_resource(uri, resource)
    for reference in references:
        try:
            registry.resolver(uri).lookup(reference)
        except (Unresolvable, ValueError, TypeError, KeyError) as exc:
            raise _refused(
                f"refers to {reference[:MAX_SHOWN]!r}, which it does not contain"
            ) from exc


def _matcher(pattern: str) -> TypeAdapter[str]:
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])


def _json_source(text: str) -> str:
    """Return the JSON of ``text``: the body of its only fence, or the whole."""
    fenced = blocks(text)
    if len(fenced) == 1 and fenced[0].is_closed:
        around = text[: fenced[0].start] + text[fenced[0].end :]
        if not around.strip():
            return fenced[0].body
    return text


def _number(literal: str) -> float | int:
    number = float(literal)
    # 1.0 is an integer for JSON Schema, and equal to 1.
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _errors(value: Json, schema: Mapping[str, Json]) -> list[ValidationError]:
    budget = _Budget()
    _measure(value, budget.sizes)
    token = _BUDGET.set(budget)
    try:
        validator = _bounded(_draft(schema))(dict(schema), registry=Registry())
        return list(islice(validator.iter_errors(value), MAX_FINDINGS))
    finally:
        _BUDGET.reset(token)


def _measure(value: Json, sizes: dict[int, int]) -> int:
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        size = sum(len(key) + 4 + _measure(item, sizes) for key, item in value.items())
    elif isinstance(value, list):
        size = sum(2 + _measure(item, sizes) for item in value)
    else:
        return 8
    sizes[id(value)] = size
    return size


@cache
def _bounded(draft: type[Validator]) -> type[Validator]:
    """Return ``draft`` with every keyword counted and the unbounded ones replaced."""
    keywords: dict[str, Keyword] = dict(draft.VALIDATORS)
    keywords |= {"pattern": _pattern, "uniqueItems": _unique_items, "enum": _enum}
    keywords["additionalProperties"] = _additional_properties
    keywords |= dict.fromkeys(REFUSED & keywords.keys(), _unsupported)
    counted = {name: _counted(keyword) for name, keyword in keywords.items()}
    bounded: type[Validator] = extend(draft, counted)  # type: ignore[no-untyped-call]
    return bounded


def _counted(keyword: Keyword) -> Keyword:
    def count(
        validator: Json, value: Json, instance: Json, schema: Json
    ) -> Iterator[ValidationError]:
        budget = _BUDGET.get()
        budget.spend(1)
        for error in keyword(validator, value, instance, schema) or ():
            # An error holds the instance's whole text.
            budget.spend(1 + budget.size(instance) // 64)
            yield error

    return count


def _pattern(_: Json, pattern: str, instance: Json, __: Json) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    if len(instance) > MAX_MATCHED or len(pattern) > MAX_PATTERN:
        raise _ExhaustedError
    _BUDGET.get().spend(20 + len(instance) // 32)
    try:
        _matcher(pattern).validate_python(instance)
    except MismatchError:
        yield ValidationError(f"{instance[:MAX_SHOWN]!r} does not match {pattern!r}")
    except (PatternError, ValueError) as exc:
        raise _ExhaustedError from exc


def _unique_items(_: Json, is_asked: Json, instance: Json, __: Json) -> Iterator[ValidationError]:
    if not is_asked or not isinstance(instance, list):
        return
    _BUDGET.get().spend(_BUDGET.get().size(instance) // 32)
    if len({json.dumps(item, sort_keys=True) for item in instance}) < len(instance):
        yield ValidationError("the items are not all different")


def _enum(_: Json, values: list[Json], instance: Json, __: Json) -> Iterator[ValidationError]:
    _BUDGET.get().spend(len(values))
    wanted = json.dumps(instance, sort_keys=True)
    if all(json.dumps(_plain(value), sort_keys=True) != wanted for value in values):
        yield ValidationError("the value is not one of those allowed")


def _plain(value: Json) -> Json:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _additional_properties(
    validator: Json, allowed: Json, instance: Json, schema: Json
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    extras = [name for name in instance if name not in schema.get("properties", {})]
    if isinstance(allowed, dict):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        yield ValidationError(f"properties that are not allowed: {', '.join(extras)[:MAX_SHOWN]}")


def _unsupported(*_: Json) -> None:
    raise _ExhaustedError


def _error_finding(error: ValidationError, source: str) -> Finding:
    nearest = best_match([error]) or error
    path = nearest.json_path
    return _finding(
        _quote(nearest, source), path, _expected(nearest), f"At {path}: {_problem(nearest)}."
    )


def _finding(evidence: str, path: str, expected: str, rationale: str) -> Finding:
    return Finding(
        indicator_id=CHECK_ID,
        name="Message schema",
        violated=True,
        evidence=evidence,
        rationale=rationale,
        suggestion=f"At {path} give {expected}.",
        source="check",
    )


def _problem(error: ValidationError) -> str:
    return (
        error.message if len(error.message) <= MAX_SHOWN else f"{error.validator} is not satisfied"
    )


def _expected(error: ValidationError) -> str:
    wanted = json.dumps(error.validator_value, ensure_ascii=False, default=str)[:MAX_SHOWN]
    match error.validator:
        case "type":
            return f"a value of type {wanted}"
        case "required":
            return f"what is missing: {error.message}"[:MAX_SHOWN]
        case "enum":
            return f"one of {wanted}"
        case "const":
            return f"exactly {wanted}"
        case "additionalProperties":
            return f"only the properties of the schema ({error.message})"[:MAX_SHOWN]
        case _:
            return f"what satisfies {error.validator}: {wanted}"


def _quote(error: ValidationError, source: str) -> str:
    """Return words of ``source`` that show the place: the value, its key, or the beginning."""
    keys = [f'"{part}"' for part in error.absolute_path if isinstance(part, str)]
    value = error.instance
    shown = json.dumps(value, ensure_ascii=False) if not isinstance(value, dict | list) else ""
    at = source.find(keys[-1]) if keys else 0
    if shown and len(shown) <= MAX_SHOWN and (found := source.find(shown, max(at, 0))) >= 0:
        is_beside = at >= 0 and bool(keys) and source[at + len(keys[-1]) : found].strip() == ":"
        return source[at : found + len(shown)] if is_beside else shown
    return keys[-1] if keys and at >= 0 else _start(source)


def _start(text: str) -> str:
    return text.strip()[:MAX_SHOWN].strip()
