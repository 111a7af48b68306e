from __future__ import annotations

import pytest

from kctl.errors import KctlError
from kctl.records.bounds import FIRST, LAST, Bound, Extent, parse_bound, place
from kctl.texts.scopes import parse_numbers


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", FIRST),
        ("beginning", FIRST),
        ("LATEST", LAST),
        ("end", LAST),
        ("17", Bound("offset", 17)),
        ("-5", Bound("back", 5)),
        ("@1763703000000", Bound("time", 1763703000000)),
        ("@-1s", Bound("time", 0)),
    ],
)
def test_bounds(text: str, bound: Bound) -> None:
    assert parse_bound(text, "--from", 1000) == bound


@pytest.mark.parametrize("text", ["", "x", "1.5", "--5", "+5", "²"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(KctlError, match="--from"):
        parse_bound(text, "--from", 1000)


@pytest.mark.parametrize(
    ("bound", "at_time", "offset"),
    [
        (FIRST, None, 100),
        (LAST, None, 200),
        (Bound("offset", 150), None, 150),
        (Bound("offset", 5), None, 100),
        (Bound("offset", 500), None, 200),
        (Bound("back", 10), None, 190),
        (Bound("back", 1000), None, 100),
        (Bound("time", 1), 130, 130),
        (Bound("time", 1), None, 200),
        (Bound("time", 1), 50, 100),
    ],
)
def test_places_are_within_the_log(bound: Bound, at_time: int | None, offset: int) -> None:
    assert place(bound, Extent(100, 200), at_time) == offset


def test_numbers() -> None:
    assert parse_numbers("0,3-5, 7") == [0, 3, 4, 5, 7]
    for wrong in ("", "a", "5-3", "1,,2", "0-99999999"):
        with pytest.raises(KctlError):
            parse_numbers(wrong)
