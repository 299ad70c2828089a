"""Request examples of the OpenAPI document; a test posts each of them."""

from typing import Any

from fastapi.openapi.models import Example

_TASK = "A shop sells 17 boxes with 23 pens each. How many pens is that?"
_WRONG = "17 * 23 = 340 + 41 = 381. The final answer is 381."
_RIGHT = "17 * 23 = 340 + 51 = 391. The final answer is 391."

_wrong: dict[str, Any] = {
    "task": _TASK,
    "message": {"agent": "solver", "role": "Math Solver", "content": _WRONG},
}
_right: dict[str, Any] = {
    "task": _TASK,
    "message": {"agent": "solver", "role": "Math Solver", "content": _RIGHT},
}

AUDIT_EXAMPLES: dict[str, Example] = {
    "a wrong sum": {"value": _wrong},
    "a right sum in one pool": {"value": {**_right, "pool": "math"}},
    "only the checks": {"value": {**_wrong, "policy": "checks", "deadline_ms": 5_000}},
    "an answer that must be JSON": {
        "value": {
            "task": "Give the capital of France as JSON.",
            "message": {"agent": "writer", "content": '{"capital": "Paris"}'},
            "message_schema": {
                "type": "object",
                "properties": {"capital": {"type": "string"}},
                "required": ["capital"],
            },
        }
    },
}

RECTIFY_EXAMPLES: dict[str, Example] = {
    "the first attempt of a message": {
        "value": {**_wrong, "run_id": "run-1", "message_id": "solver-1"}
    },
    "without a run": {"value": {**_wrong, "attempt": 1}},
}
