"""What Spark says of a batch, and of its looks between batches."""

from __future__ import annotations

import json
from typing import Any

from kafkad_etl.driver.progress import progress_of


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
