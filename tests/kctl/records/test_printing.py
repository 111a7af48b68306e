"""Records are out before the next ones are asked for, whatever they are printed as."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkad.wire.records import Record
from kctl.records.consume import COLUMNS
from kctl.records.printing import print_records
from kctl.records.searching import Chunk
from kctl.settings import Settings


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "csv"])
def test_a_chunk_is_out_before_the_next_one_is_asked_for(output: str, capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    settings.output = output
    printed: list[list[str]] = []

    def chunks() -> Iterator[Chunk]:
        for first in (0, 10):
            values = [b"value-%d" % number for number in range(first, first + 10)]
            yield Chunk("t", 0, [Record(0, 0, None, value, ()) for value in values])
            out = capfd.readouterr().out
            printed.append([value.decode() for value in values if value.decode() in out])

    print_records(settings, COLUMNS, None, chunks())
    assert list(map(len, printed)) == [10, 10]
