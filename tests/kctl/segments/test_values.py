"""Values for programs are JSON, whatever they are in the log."""

from __future__ import annotations

import pytest

from kctl.segments.values import renderer


@pytest.mark.parametrize("data", [b'{"a": NaN}', b"-Infinity"])
@pytest.mark.parametrize("machine", [True, False])
def test_what_json_has_no_number_for_stays_text(data: bytes, machine: bool) -> None:
    assert renderer("json", machine=machine)(data) == data.decode()


def test_numbers_that_programs_could_not_read_stay_text() -> None:
    assert renderer("json", machine=True)(b'{"a": 1e999}') == '{"a": 1e999}'


def test_people_see_numbers_as_they_are_written() -> None:
    data = b'{"price": 1.10, "large": 1e999, "id": %b}' % (b"9" * 5000)
    assert renderer("json", machine=False)(data) == data.decode().replace(" ", "")
