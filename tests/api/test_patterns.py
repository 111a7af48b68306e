"""Regular expressions of clients: as Python's say, for what both know, and never for ever."""

from __future__ import annotations

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.api.patterns import Pattern, PatternError

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\W", r"\.", "-", "^", "$", "[]a]", "[a-]", ""]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.builds(
        "(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0}", "*?"])
    )
    joined = st.lists(inner, max_size=3).map("".join)
    either = st.lists(inner, min_size=2, max_size=3).map("|".join).map("({})".format)
    return repeated | joined | either


PATTERNS = st.recursive(ATOMS, grown, max_leaves=8)
TEXTS = st.text("abc.-1\n", max_size=8)


@given(PATTERNS, TEXTS)
def test_what_matches_is_what_python_says(pattern: str, text: str) -> None:
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII).fullmatch(text) is not None
    assert Pattern(pattern).matches(text) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("app-.*", "app-1", True),
        ("app-.*", "my-app-1", False),
        ("app", "app-1", False),
        ("", "", True),
        ("x{,2}", "x{,2}", True),
        ("ünï", "ünï", True),
        (r"a\tb", "a\tb", True),
        ("(" * 50 + "a" + ")" * 50 + "(b)", "ab", True),
    ],
)
def test_matching_is_of_the_whole(pattern: str, text: str, matches: bool) -> None:
    assert Pattern(pattern).matches(text) == matches


@pytest.mark.parametrize(
    "pattern",
    [
        "[",
        "(",
        ")",
        "a)",
        "*",
        "a**",
        "(?=a)",
        "(?P<n>a)",
        r"\1",
        r"\q",
        "[b-a]",
        "a{3,2}",
        "a" * 1001,
        "\\",
        "[a",
        "a{999}{9}",
        "((a{50}){50}){50}",
        "(" * 51 + ")" * 51,
        "(" * 250 + ")" * 250,
    ],
)
def test_what_cannot_be_followed_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*x", "a*a*a*a*a*a*a*a*b", "(a?){30}a{30}b"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    begun = process_time()
    assert not Pattern(pattern).matches("a" * 3_000)
    assert process_time() - begun < 2
