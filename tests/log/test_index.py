"""A stored offset index answers as one in memory does, wherever it was searched before."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkad.log.files import Files
from kafkad.log.index import OFFSET_ENTRY_SIZE, OffsetIndex, StoredOffsetIndex

MANY = 2000
"""More than a stored index keeps of itself."""


@given(
    gaps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20),
    searches=st.lists(st.tuples(st.booleans(), st.integers(0, 100), st.integers(-3, 3)), min_size=1, max_size=30),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_searches_in_any_order(
    tmp_path: Path, gaps: list[tuple[int, int]], searches: list[tuple[bool, int, int]]
) -> None:
    data = b""
    offset = position = 0
    for number in range(MANY if gaps else 0):
        offset_gap, position_gap = gaps[number % len(gaps)]
        offset, position = offset + offset_gap, position + position_gap
        data += struct.pack(">ii", offset, position)
    path = tmp_path / "0.index"
    path.write_bytes(data)
    stored = StoredOffsetIndex(Files(), Files().open_log_file(str(path), os.O_RDONLY), len(data))
    known = OffsetIndex(data)
    assert len(stored) == len(known) == len(data) // OFFSET_ENTRY_SIZE
    for by_offset, percent, aside in searches:
        if by_offset:
            wanted = offset * percent // 100 + aside
            number = stored.at_or_after(wanted)
            assert number == known.at_or_after(wanted)
            if number < len(known):
                assert stored.entry(number) == known.entry(number)
        else:
            wanted = position * percent // 100 + aside
            assert stored.position_at_or_before(wanted) == known.position_at_or_before(wanted)
