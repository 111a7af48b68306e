"""Values for programs are JSON, whatever they are in the log."""

from __future__ import annotations

import pytest

from kctl.segments.values import renderer


@pytest.mark.parametrize("data", [b'{"a": 1e999}', b'{"a": NaN}', b"-Infinity"])
@pytest.mark.parametrize("machine", [True, False])
def test_what_json_has_no_number_for_stays_text(data: bytes, machine: bool) -> None:
    assert renderer("json", machine=machine)(data) == data.decode()
