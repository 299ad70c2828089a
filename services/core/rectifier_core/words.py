"""Words of a text, as search by word compares them.

Latin words lose their accents and their plural. Other scripts, whose words may not be parted by
spaces and whose endings no rule here knows, become character n-grams. Mathematical notation is
read aloud: a solution that shows a root rarely says "square root", an indicator does.
"""

import re
import unicodedata

LONGEST = 16_384  # characters; of a longer text the first and the last half of that are read
SAMPLE = 8_192  # characters that tell which script a text is in

_SPOKEN = {
    "angle": "angle",
    "∠": "angle",
    "binom": "binomial coefficient combination",
    "bmod": "modulo modular",
    "circ": "degree angle",
    "cong": "congruent",
    "cos": "cosine trigonometric",
    "equiv": "congruence modular",
    "≡": "congruence modular",
    "frac": "fraction",
    "dfrac": "fraction",
    "tfrac": "fraction",
    "gcd": "greatest common divisor gcd",
    "ge": "inequality",
    "geq": "inequality",
    "≥": "inequality",
    "infty": "infinite",
    "∞": "infinite",
    "int": "integral",
    "∫": "integral",
    "le": "inequality",
    "leq": "inequality",
    "≤": "inequality",
    "log": "logarithm logarithmic",
    "ln": "logarithm logarithmic",
    "overline": "segment",
    "perp": "perpendicular",
    "pmatrix": "matrix",
    "pmod": "modulo modular congruence",
    "prod": "product",
    "∏": "product",
    "sim": "similar",
    "sin": "sine trigonometric",
    "sqrt": "square root",
    "√": "square root",
    "sum": "sum summation series",
    "∑": "sum summation series",
    "tan": "tangent trigonometric",
    "theta": "angle",
    "times": "multiplication",
    "cdot": "multiplication product",
    "vec": "vector",
}

_NOTATION = re.compile(r"\\([A-Za-z]+)|([∠≡≥∞∫≤∏√∑])")
_ACCENT = re.compile("[\u0300-\u036f]")
# A Latin word, or a run of letters in another script.
_WORD = re.compile(r"[a-z][a-z0-9]+|[^\W\d_a-z]+")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile("[A-Za-zªºÀ-ÖØ-öø-ɏḀ-ỿＡ-Ｚａ-ｚ\U0001d400-\U0001d7ff]")

_STOP = frozenset(
    [
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "his",
        "how",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "may",
        "more",
        "no",
        "not",
        "of",
        "on",
        "one",
        "or",
        "our",
        "she",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "too",
        "under",
        "up",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "will",
        "with",
        "would",
        "you",
        "your",
        "let",
        "thus",
        "hence",
        "since",
        "because",
        "also",
    ]
)


def words(text: str) -> list[str]:
    """Return the words and n-grams of ``text`` in order, without those that say nothing.

    Args:
        text: Anything. The time is bounded: of more than 16,384 characters the middle is not read.
    """
    found = []
    for word in _WORD.findall(_plain(_NOTATION.sub(_spoken, _ends(text, LONGEST)))):
        if not word[0].isascii():
            found.extend(_grams(word))
        elif word not in _STOP:
            found.append(_singular(word))
    return found


def is_mostly_latin(text: str) -> bool:
    """Return whether at least half of the letters are Latin; true where there are no letters.

    Letters that only mathematics uses count as Latin. Of long texts both ends are looked at.
    """
    sample = _ends(text, SAMPLE)
    if sample.isascii():
        return True
    letters = len(_LETTER.findall(sample))
    return 2 * len(_LATIN.findall(sample)) >= letters


def _ends(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} {text[-(longest // 2) :]}"


def _spoken(notation: re.Match[str]) -> str:
    sign = notation[1] or notation[2]
    return f" {_SPOKEN.get(sign, sign)} "


def _plain(text: str) -> str:
    if not text.isascii():
        # One character can stand for eighteen, so the bound holds anew.
        apart = unicodedata.normalize("NFKD", text)[:LONGEST]
        text = unicodedata.normalize("NFKC", _ACCENT.sub("", apart))
    return text.lower()


def _singular(word: str) -> str:
    """Cut a plural ending.

    Source: the S stemmer of Harman, How Effective Is Suffixing?, JASIS 42(1), 1991.
    """
    if word[-1] != "s" or len(word) < 4:
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith(("us", "ss", "is", "aes", "ees", "oes")):
        return word
    return word[:-1]


def _grams(run: str) -> list[str]:
    size = 2 if run[0] >= "\u0e00" else 3  # from Thai on, most scripts pack more into a letter
    return [run[i : i + size] for i in range(max(1, len(run) - size + 1))]
