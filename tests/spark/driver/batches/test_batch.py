from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkad_etl.driver.batches.batch import good, unmarked


class Frame:
    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def where(self, condition: str) -> Frame:
        return self

    def drop(self, *columns: str) -> Frame:
        return Frame(*[column for column in self.columns if column not in columns])


@pytest.mark.parametrize("rest", [good, unmarked])
def test_what_only_bad_rows_need_goes_and_nothing_where_there_can_be_none(rest: Any) -> None:
    """Lines of files always have all of it; a file of Parquet may have columns with these names."""
    rows = Frame("id", "_bad", "_file", "_raw_key", "_raw_value")
    assert rest(rows, SimpleNamespace(can_be_bad=True)).columns == ("id",)
    assert rest(rows, SimpleNamespace(can_be_bad=False)).columns == rows.columns
