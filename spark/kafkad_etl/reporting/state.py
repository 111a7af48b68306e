"""A run's progress so far, folded from events. Pure: `advance(state, event, now)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kafkad.names import TopicPartition
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.job import Offsets
from kafkad_etl.messages import (
    Batch,
    Committed,
    Ended,
    Ends,
    Event,
    Failed,
    Lost,
    OpenWindows,
    Query,
    Retrying,
    Started,
    Tasks,
    Unsure,
    Warned,
)

_RECENT_SECONDS = 60.0
MOST_WARNINGS = 10
"""How many of a run's first warnings are kept, and of its last."""


class Span(NamedTuple):
    """The progress of one partition: the offset where this run started, the next offset to read, and the end of the
    log as far as it is known."""

    start: int
    done: int
    end: int
    latest: int = 0
    """The end as kctl itself has polled it, which moves on while Spark is silent."""

    @property
    def lag(self) -> int:
        return max(self.end - self.done, self.latest - self.done, 0)


class Sample(NamedTuple):
    """The number of offsets of each topic that were done at a moment."""

    now: float
    done: Mapping[str, int]


Spans = Mapping[str, Mapping[int, Span]]


class Warnings(NamedTuple):
    """A run's warnings, each once: its first and its last ones. A check may warn of every batch."""

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    between: int = 0
    """Number of those that came between them, and are not kept."""

    def and_also(self, text: str) -> Warnings:
        if text in self.first or text in self.last:
            return self
        if len(self.first) < MOST_WARNINGS:
            return self._replace(first=(*self.first, text))
        last = (*self.last, text)
        return self._replace(last=last[-MOST_WARNINGS:], between=self.between + (len(last) > MOST_WARNINGS))


class State(Struct, frozen=True, kw_only=True):
    began: float
    spans: Spans = {}
    record_bytes: Mapping[str, float] = {}
    """Average record size by topic, where the brokers report sizes."""
    samples: tuple[Sample, ...] = ()
    application: str = ""
    reading: bool = False
    """True once Spark has started and the query runs."""
    batches: int = 0
    replayed: int = 0
    read: int = 0
    written: int = 0
    bad: int = 0
    late: int = 0
    duplicates: int = 0
    files: int = 0
    bytes_written: int = 0
    watermark: str = ""
    open_groups: int = 0
    windows: OpenWindows | None = None
    tasks: Tasks | None = None
    batch_seconds: float = 0.0
    batch_ended: float | None = None
    """The time at which the last batch was committed, by the same clock as `began`."""
    failures: int = 0
    """Failed batches."""
    retries: int = 0
    """Failed batches that were retried."""
    untold: int = 0
    """Committed batches whose row counts are unknown."""
    unsure: Mapping[str, int] = {}
    """By topic: the maximum number of rows written by batches that were not committed."""
    lost: tuple[Gap, ...] = ()
    """Records that were deleted before they were read, where the job or the command line accepts that."""
    warnings: Warnings = Warnings()
    failed: Failed | None = None
    reason: str = ""

    @property
    def lag(self) -> int:
        return sum(lag_of(spans) for spans in self.spans.values())


def lag_of(spans: Mapping[int, Span]) -> int:
    return sum(span.lag for span in spans.values())


def done_of(spans: Mapping[int, Span]) -> int:
    return sum(span.done - span.start for span in spans.values())


def total_of(spans: Mapping[int, Span]) -> int:
    return sum(max(span.end, span.done) - span.start for span in spans.values())


def begin(
    now: float,
    start: Offsets,
    end: Offsets,
    record_bytes: Mapping[str, float] | None = None,
    lost: tuple[Gap, ...] = (),
) -> State:
    spans = {
        topic: {p: Span(offset, offset, max(end.get(topic, {}).get(p, offset), offset)) for p, offset in found.items()}
        for topic, found in start.items()
    }
    samples = (Sample(now, dict.fromkeys(spans, 0)),)
    return State(began=now, spans=spans, record_bytes=record_bytes or {}, samples=samples, lost=lost)


def advance(state: State, event: Event, now: float) -> State:
    match event:
        case Started():
            return replace(state, application=event.application)
        case Query():
            return replace(state, reading=True, samples=(Sample(now, _done(state.spans)),))
        case Tasks():
            return replace(state, tasks=event)
        case Batch():
            return _with_batch(state, event, now)
        case OpenWindows():
            return replace(state, windows=event, open_groups=event.groups)
        case Lost() | Ends() | Committed() | Unsure():
            return _as_the_front_knows(state, event)
        case Warned():
            return replace(state, warnings=state.warnings.and_also(event.text))
        case Retrying() | Failed():
            return _with_failure(state, event)
        case Ended():
            return replace(state, reason=event.reason, tasks=None)
    return state


def _with_failure(state: State, event: Retrying | Failed) -> State:
    state = replace(state, failures=state.failures + 1, tasks=None)
    if isinstance(event, Retrying):
        return replace(state, retries=state.retries + 1)
    return replace(state, failed=event)


def _as_the_front_knows(state: State, event: Lost | Ends | Committed | Unsure) -> State:
    if isinstance(event, Lost):
        return replace(state, lost=(*state.lost, gap_of(event)))
    if isinstance(event, Unsure):
        return replace(state, unsure={**state.unsure, event.topic: event.rows})
    if isinstance(event, Ends):
        return replace(state, spans=_with(state.spans, event.ends, lambda span, end: span._replace(latest=end)))
    moved = _with(state.spans, event.end, lambda span, done: span._replace(done=max(done, span.done)))
    return replace(state, spans=moved, untold=state.untold + event.count)


def _with(spans: Spans, offsets: Offsets, changed: Callable[[Span, int], Span]) -> Spans:
    return {
        topic: {
            p: changed(span, offsets[topic][p]) if p in offsets.get(topic, {}) else span for p, span in each.items()
        }
        for topic, each in spans.items()
    }


def gap_of(lost: Lost) -> Gap:
    return Gap(TopicPartition(lost.topic, lost.partition), lost.first, lost.end, lost.certain, lost.recreated)


def _with_batch(state: State, batch: Batch, now: float) -> State:
    spans = _moved(state.spans, batch)
    kept = [sample for sample in state.samples if sample.now >= now - _RECENT_SECONDS] or list(state.samples[-1:])
    return replace(
        state,
        spans=spans,
        samples=(*kept, Sample(now, _done(spans))),
        batches=state.batches + 1,
        replayed=state.replayed + batch.replayed,
        read=state.read + batch.rows_read,
        written=state.written + batch.rows_written,
        bad=state.bad + batch.bad,
        late=state.late + batch.late,
        duplicates=state.duplicates + batch.duplicates,
        files=state.files + batch.files,
        bytes_written=state.bytes_written + batch.bytes_written,
        watermark=batch.watermark or state.watermark,
        open_groups=batch.open_groups,
        batch_seconds=batch.seconds,
        batch_ended=now,
        tasks=None,
    )


def _moved(spans: Spans, batch: Batch) -> Spans:
    """Spans after a batch. New partitions start where the batch started."""
    moved = {topic: dict(found) for topic, found in spans.items()}
    for topic, ends in batch.end.items():
        for partition, done in ends.items():
            before = moved.setdefault(topic, {}).get(partition)
            start = batch.start.get(topic, {}).get(partition, 0)
            if before:  # a remote checkpoint may be further than was known
                start = max(start, before.start) if before.done == before.start else before.start
            end = max(batch.latest.get(topic, {}).get(partition, done), before.end if before else done)
            moved[topic][partition] = Span(start, done, max(end, done), before.latest if before else 0)
    return moved


def _done(spans: Spans) -> dict[str, int]:
    return {topic: done_of(found) for topic, found in spans.items()}


def rows_per_second(state: State, topic: str) -> float | None:
    """The rate over the last minute; None before the first batch."""
    first, last = state.samples[0], state.samples[-1]
    if last.now <= first.now:
        return None
    return (last.done.get(topic, 0) - first.done.get(topic, 0)) / (last.now - first.now)


def seconds_left(state: State, topic: str) -> float | None:
    rate = rows_per_second(state, topic)
    return lag_of(state.spans[topic]) / rate if rate else None
