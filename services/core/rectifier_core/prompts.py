"""Prompts: text files beside this module, filled in one pass.

A file holds the system message, a line ``---`` and the user message. Places to fill are written
``$name``; what is filled in is never looked at again, so that text of others may hold any
character.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

_SHARED = ("data_rule", "presumption")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The two messages of one question.

    Attributes:
        system: Rules, from the file.
        user: What is asked, with text of others as data.
    """

    system: str
    user: str


def prompt(name: str, **fields: str) -> Prompt:
    """Return the prompt of file ``name`` with its places filled.

    Args:
        name: The file's name without its ending.
        fields: A text for each place. Two are there already, shared by several prompts:
            ``data_rule`` and ``presumption``.

    Raises:
        KeyError: A place was given no text.
    """
    given = {shared: _file(shared) for shared in _SHARED} | fields
    system, _, user = _file(name).partition("\n---\n")
    return Prompt(Template(system).substitute(given), Template(user).substitute(given))


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8").strip()
