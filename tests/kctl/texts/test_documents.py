"""YAML and JSON of people: why a text is none, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kctl.texts.documents import read_json, read_yaml


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_what_is_read() -> None:
    assert read_json('{"a": [1, null]}') == read_yaml("a: [1, null]") == {"a": [1, None]}
    assert read_yaml("") is None


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (read_json, "", "Expecting value: line 1 column 1 (char 0)"),
        (read_json, nested(100_000), "it is nested too deeply"),
        (read_json, "9" * 5000, "a number in it has thousands of digits"),
        (read_yaml, "9" * 5000, "a number in it has thousands of digits"),
        (read_yaml, "a:\n- [", "line 3: did not find expected node content"),
        (read_yaml, "a: 2020-13-45", "month must be in 1..12"),
        (read_yaml, nested(100_000), "line 1: exceeded maximum nesting depth"),
    ],
)
def test_what_is_no_document(read: Callable[[str], Any], text: str, why: str) -> None:
    with pytest.raises(ValueError) as error:
        read(text)
    assert str(error.value) == why


def test_yaml_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read_yaml("a: [1, null]") == {"a": [1, None]}
    with pytest.raises(ValueError, match="it is nested too deeply"):
        read_yaml(nested(10_000))
