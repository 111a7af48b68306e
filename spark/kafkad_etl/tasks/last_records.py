"""`kctl etl preview --no-transform`: reads the raw records with kctl's own client, without Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkad.names import TopicPartition
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Reading, Rows
from kafkad_etl.model.effective import effective
from kafkad_etl.model.loading import load
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import RunOptions
from kctl.records.bounds import Span
from kctl.records.reading import Reader
from kctl.segments.values import renderer
from kctl.texts.output import rfc3339

if TYPE_CHECKING:
    from kafkad.wire.records import Record
    from kafkad_etl.tasks.previewing import Request
    from kctl.reach.session import Session
    from kctl.settings import Settings

COLUMNS = ["_topic", "_partition", "_offset", "_timestamp", "_key", "value"]
_WAIT_SECONDS = 0.5
_text = renderer("auto", machine=False)

FoundRecords = list[tuple[TopicPartition, "Record"]]


def last_records(settings: Settings, request: Request) -> Rows:
    """The first or last records. Raises EtlError for anything that goes wrong."""
    loaded = load(request.file)
    job = effective(loaded)
    asked = RunOptions(task="preview", limit_rows=request.rows, preview_from=request.begin)
    with Clusters(settings, request.file.path.parent) as clusters:
        with loaded.locating_errors():
            reading = plan(clusters, job.job, asked, job.schemas).plan.reading
        if reading is None:
            raise EtlError(
                "source.files reads files, which have no records to show",
                EtlExit.USAGE,
                hints=("use preview without --no-transform",),
            )
        committed = job.job.source.isolation == "read_committed"
        found = _read(clusters.session(job.job.kafka), reading, committed)
    return Rows(COLUMNS, [_row(where, record) for where, record in chosen(found, request.rows, request.begin)])


def _read(session: Session, reading: Reading, committed: bool) -> FoundRecords:
    spans = {
        TopicPartition(topic, partition): Span(reading.start[topic][partition], end)
        for topic, partitions in reading.end.items()
        for partition, end in partitions.items()
    }
    reader = Reader(session, spans, committed=committed)
    found: FoundRecords = []
    try:
        while not reader.done:
            for fetched in reader.poll(_WAIT_SECONDS):
                found += [(fetched.where, record) for record in fetched.records()]
    finally:
        reader.close()
    for error in reader.failed.values():
        raise error
    return found


def chosen(found: FoundRecords, count: int, begin: str) -> FoundRecords:
    """The first or last records by timestamp, in order of time."""
    ordered = sorted(found, key=lambda one: (one[1].timestamp, one[0], one[1].offset))
    return ordered[:count] if begin == "earliest" else ordered[-count:]


def _row(where: TopicPartition, record: Record) -> list[str | None]:
    moment = (rfc3339(record.timestamp) or f"{record.timestamp} ms") if record.timestamp >= 0 else None
    place = [where.topic, str(where.partition), str(record.offset), moment]
    return [*place, _text(record.key), _text(record.value)]
