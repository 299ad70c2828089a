"""A message: one agent's output, before the other agents read it."""

import hashlib
import json
import unicodedata
from dataclasses import dataclass

# Letters and symbols that show nothing, although their category says otherwise.
_BLANKS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SHOWS_NOTHING = frozenset({"Cc", "Cf", "Mn", "Zs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that a message asks for.

    Attributes:
        name: The tool.
        arguments: Its arguments as the agent wrote them, usually JSON.
    """

    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One agent output.

    Attributes:
        content: The text; None where the agent only calls tools.
        agent: The agent's name, kept in records and never sent to a model endpoint as a name.
        role: The agent's role specification R_i.
        tool_calls: The calls that it asks for.
    """

    content: str | None = None
    agent: str = ""
    role: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True where there is nothing to audit: content that shows nothing, and no tool call."""
        return not self.tool_calls and is_blank(self.content or "")

    @property
    def audited_text(self) -> str:
        """What is audited: the content, or the tool calls as JSON where there is no content."""
        content = self.content or ""
        if not self.tool_calls or not is_blank(content):
            return content
        calls = [{"name": call.name, "arguments": call.arguments} for call in self.tool_calls]
        return json.dumps({"tool_calls": calls}, ensure_ascii=False)

    @property
    def content_hash(self) -> str:
        """SHA-256 over content and tool calls, hex: tells an unchanged retry."""
        calls = [[call.name, call.arguments] for call in self.tool_calls]
        canonical = json.dumps([self.content or "", calls], ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()


def is_blank(text: str) -> bool:
    """Return True for text that shows nothing: white space, controls, invisible characters."""
    return all(char in _BLANKS or unicodedata.category(char) in _SHOWS_NOTHING for char in text)
