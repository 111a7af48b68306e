"""Java's format of properties."""

from __future__ import annotations

import pytest

from kafkad.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\nc : d\ne f\n", {"a": "b", "c": "d", "e": "f"}),
        ("# a=b\n  ! c=d\n\n   \n\te=\\ f ", {"e": " f "}),
        ("a=one, \\\n   two\\\n", {"a": "one, two"}),
        ("a=ends in \\\\\nb=c", {"a": "ends in \\", "b": "c"}),
        ("a\\=b\\:c\\ d = e=f:g", {"a=b:c d": "e=f:g"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a\r\nb=\rc=d", {"a": "", "b": "", "c": "d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\u12", {"a": "u12"}),
    ],
)
def test_format_of_properties(text: str, expected: dict[str, str]) -> None:
    assert {each.name: each.value for each in parse_properties(text)} == expected
