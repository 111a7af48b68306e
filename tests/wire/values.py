"""Messages with values from Hypothesis: any value in every field that a version has, the default in the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kafkad.errors import ErrorCode
from kafkad.wire.schema import Field, span, within

_FEW = settings(
    max_examples=6,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
_SOME = settings(_FEW, max_examples=12, derandomize=False)
_MANY = settings(_SOME, max_examples=150)
BUDGETS = [
    pytest.param(_FEW, id="few"),
    pytest.param(_SOME, id="some", marks=pytest.mark.slow),
    pytest.param(_MANY, id="many", marks=pytest.mark.long),
]

BOUNDS = {"b": 7, "h": 15, "i": 31, "q": 63}
TEXT = st.text(max_size=6)
BYTES = st.binary(max_size=8)
IDS = st.binary(min_size=16, max_size=16)
ERRORS = st.sampled_from([int(code) for code in ErrorCode])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(-(2**bits), 2**bits - 1) for kind, bits in BOUNDS.items()},
    "H": st.integers(0, 2**16 - 1),
    "I": st.integers(0, 2**32 - 1),
    "?": st.booleans(),
    "d": FLOATS,
    "16s": IDS,
    "string": TEXT,
    "bytes": BYTES,
    "records": BYTES,
}
MOMENTS = st.integers(0, 2**41)
"""Milliseconds that stay milliseconds in libraries which make dates and durations of them."""


def versions_of(cls: Any) -> range:
    first, last = span(cls.__schema__.versions)
    return range(first, last + 1)


@st.composite
def messages(draw: st.DrawFn, cls: Any, version: int) -> Any:
    values = {}
    for field in cls.__schema__.fields:
        if within(version, field.versions):
            values[field.name] = draw(field_values(field, version))
    return cls(**values)


def field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    found = _some(field, version)
    return st.none() | found if within(version, field.nullable) else found


def _some(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        return messages(field.item, version)
    if field.kind == "array":
        item = messages(field.item, version) if isinstance(field.item, type) else _some(field.item(), version)
        return st.lists(item, max_size=2)
    if field.kind == "h" and "error_code" in field.name:
        return ERRORS
    if field.kind in {"i", "q"} and ("_ms" in field.name or "timestamp" in field.name):
        return MOMENTS if field.kind == "q" else st.integers(0, 2**31 - 1)
    return PLAIN[field.kind]
