"""The header that says when to come back."""

import pytest

from rectifier_core.adapters.retry_after import seconds_to_wait


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("9" * 5_000, None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Fri, 99 Foo 99999 99:99:99 GMT", None),
    ],
)
def test_header_is_read_in_any_form(value: str, seconds: float | None) -> None:
    assert seconds_to_wait({"retry-after": value}) == seconds


def test_date_to_come_is_far() -> None:
    later = seconds_to_wait({"retry-after": "Wed, 21 Oct 2093 07:28:00 GMT"})
    assert later is not None
    assert later > 1e9


def test_milliseconds_come_first() -> None:
    assert seconds_to_wait({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert seconds_to_wait({"retry-after-ms": "soon", "retry-after": "9"}) == 9
    assert seconds_to_wait({}) is None
