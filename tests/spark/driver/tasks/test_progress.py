"""Spark's reports of a batch, and of its looks between batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkad_etl.driver.tasks.progress import progress_of, recent

PROGRESS = {
    "batchId": 7,
    "durationMs": {"addBatch": 900, "commitOffsets": 20, "queryPlanning": 5, "triggerExecution": 1200, "walCommit": 30},
    "eventTime": {"watermark": "2026-11-01T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "customMetrics": {"numDroppedDuplicateRows": 3}},
        {"numRowsTotal": 9, "customMetrics": {}},
    ],
    "sources": [{"startOffset": None, "endOffset": {"t": {"0": 4}}, "latestOffset": {"t": {"0": 9}}}],
}


def said(batch: int, phases: dict[str, int], **more: Any) -> str:
    offsets = {"orders": {"0": 60}}
    source = {"startOffset": {"orders": {"0": 0}}, "endOffset": offsets, "latestOffset": offsets}
    return json.dumps({"batchId": batch, "durationMs": phases, "sources": [source]} | more)


def test_a_look_that_found_nothing_is_not_the_batch_that_has_the_same_number() -> None:
    state = {"numRowsTotal": 5, "customMetrics": {"numDroppedDuplicateRows": 200}}
    ran = progress_of(said(3, {"latestOffset": 4, "addBatch": 700, "triggerExecution": 900}, stateOperators=[state]))
    assert (ran.batch, ran.ran, ran.duplicates, ran.groups, ran.seconds) == (3, True, 200, 5, 0.9)
    assert ran.latest == {"orders": {0: 60}}
    looked = progress_of(said(3, {"latestOffset": 4, "triggerExecution": 5}))
    assert (looked.batch, looked.ran, looked.duplicates) == (3, False, 0)


def test_progress_of_a_stream_without_state_has_no_watermark() -> None:
    found = progress_of(json.dumps(PROGRESS))
    assert (found.batch, found.latest, found.groups, found.duplicates) == (7, {"t": {0: 9}}, 9, 3)
    assert found.phases == {"commit": 0.02, "planning": 0.005, "log": 0.03} and found.seconds == 1.2
    assert found.watermark == "2026-11-01T00:00:00.000Z"
    epoch = PROGRESS | {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}, "stateOperators": []}
    assert (progress_of(json.dumps(epoch)).watermark, progress_of(json.dumps(epoch)).groups) == ("", 0)
    files = {"batchId": 1, "sources": [{"latestOffset": {"logOffset": 3}}]}
    assert progress_of(json.dumps(files)).latest == {}


class Report:
    def __init__(self, batch: int, ran: bool) -> None:
        self._batch = batch
        self._ran = ran
        self.was_read = False

    def batchId(self) -> int:  # noqa: N802
        return self._batch

    def json(self) -> str:
        self.was_read = True
        return json.dumps(
            {"batchId": self._batch, "sources": [], "durationMs": {"addBatch": 7} if self._ran else {"latestOffset": 1}}
        )


class Query:
    """Has run batches 0 to 4; after each it has looked once and found nothing."""

    def __init__(self) -> None:
        self.reports = [Report(number + (not ran), ran) for number in range(5) for ran in (True, False)]

    @property
    def _jsq(self) -> Any:
        return self

    def recentProgress(self) -> list[Report]:  # noqa: N802
        return self.reports


@pytest.mark.parametrize(
    ("first", "batches"), [(3, [(3, False), (3, True), (4, False), (4, True), (5, False)]), (6, [])]
)
def test_only_reports_of_a_batch_and_those_after_it_are_read(first: int, batches: list[tuple[int, bool]]) -> None:
    query = Query()
    assert [(progress.batch, progress.ran) for progress in recent(query, first)] == batches
    assert sum(report.was_read for report in query.reports) == len(batches)
