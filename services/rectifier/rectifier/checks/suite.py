"""All checks of one message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rectifier.checks.arithmetic import arithmetic_findings
from rectifier.checks.python_code import python_findings
from rectifier.checks.schema import schema_findings
from rectifier.verdict import Finding


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What the checks found.

    Attributes:
        findings: Violations, each with a verbatim quote and the exact correction.
        is_cut: True where a part of the message was too large or too deep to be checked.
    """

    findings: tuple[Finding, ...] = ()
    is_cut: bool = False


def check(
    text: str,
    *,
    task: str = "",
    context: Sequence[str] = (),
    message_schema: Mapping[str, Any] | None = None,
) -> CheckResult:
    """Check one message, in time that grows at most linearly with it.

    Args:
        text: The message, at most 256 KiB.
        task: The task; what the message copies from it is not the message's error.
        context: Earlier messages, treated as the task is.
        message_schema: A document that ``check_schema_document`` accepts; its values are plain JSON.

    Returns:
        Violations only: of the schema first, then of Python, then of arithmetic.
    """
    results = [
        schema_findings(text, message_schema) if message_schema is not None else ([], False),
        python_findings(text, task=task),
        arithmetic_findings(text, sources=(task, *context)),
    ]
    return CheckResult(
        findings=tuple(finding for findings, _ in results for finding in findings),
        is_cut=any(is_cut for _, is_cut in results),
    )
