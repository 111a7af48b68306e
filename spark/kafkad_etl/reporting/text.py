"""Texts about a run for people: the progress line and the final summary. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafkad_etl.messages import Compacted, Event, Expired, Lost, Retrying, Warned
from kafkad_etl.reporting.state import (
    Span,
    State,
    Warnings,
    done_of,
    gap_of,
    lag_of,
    rows_per_second,
    seconds_left,
    total_of,
)
from kctl.texts.output import counted, duration_text, size_text

_PARTITIONS = 12
"""Maximum number of partitions per topic whose offsets the summary shows."""


def event_line(event: Event) -> str:
    """The line printed for an event; empty if it has none."""
    if isinstance(event, Warned):
        return f"warning: {event.text}"
    if isinstance(event, Retrying):
        return f"warning: {event.text}; retrying in {event.seconds:g} s ({event.attempt} of {event.most})"
    if isinstance(event, Lost):
        return f"warning: {gap_of(event)}; continuing without them"
    if isinstance(event, Compacted):
        where = f" in {event.directory}" if event.directory else ""
        return f"merged {event.files_before} files{where}, {counted(event.rows, 'row')}, {size_text(event.bytes_after)}"
    if isinstance(event, Expired):
        return f"removed versions from before {event.before} and {counted(event.files, 'file')} that no later one needs"
    return ""


def progress_line(state: State, topic: str) -> str:
    """orders  120,000/1,000,000 rows  12%  9,803 rows/s  0.9 MB/s  lag 880,000  1m29s left"""
    spans = state.spans[topic]
    done, total = done_of(spans), total_of(spans)
    share = f"{done / total:.0%}" if total else "100%"
    return "  ".join((topic, f"{done:,}/{total:,} rows", share, *paces(state, topic)))


def paces(state: State, topic: str) -> Iterator[str]:
    rate = rows_per_second(state, topic)
    if rate is not None:
        yield f"{rate:,.0f} rows/s"
        if topic in state.record_bytes:
            yield f"{size_text(round(rate * state.record_bytes[topic]))}/s"
    yield f"lag {lag_of(state.spans[topic]):,}"
    left = seconds_left(state, topic)
    if left:
        yield f"{duration_text(round(left * 1000))} left"


def batch_line(state: State) -> str:
    """Progress that is not specific to a topic: tasks of the current batch, the watermark, and rows that were left
    out."""
    parts = []
    if not state.reading:
        parts.append("Spark is starting")
    elif state.tasks:
        parts.append(f"batch {state.tasks.batch}: {state.tasks.done}/{state.tasks.total} tasks")
    elif state.batches:
        parts.append("1 batch written" if state.batches == 1 else f"{state.batches:,} batches written")
    else:
        parts.append("waiting for the first batch")
    if state.watermark:
        parts.append(f"watermark {state.watermark}")
    parts += [f"{count:,} {name}" for name, count in _left_out(state) if count]
    return "  ".join(parts)


def status_line(state: State) -> str:
    """The whole run in a line, whatever the number of its topics."""
    if not state.reading:
        return batch_line(state)
    return f"{batch_line(state)}  {state.read:,} rows read  {state.written:,} written  lag {state.lag:,}"


def _left_out(state: State) -> tuple[tuple[str, int], ...]:
    return ("bad", state.bad), ("dropped late", state.late), ("duplicates", state.duplicates)


_ENDS = {
    "done": "done",
    "limit": "stopped at its limit",
    "stopped": "stopped",
    "interrupted": "interrupted",
    "failed": "failed",
}


def summary(state: State, outcome: str, seconds: float, *, guarantee: str = "", log: str = "") -> Iterator[str]:
    """The final summary. It also shows counts that are zero, since readers look for them."""
    counts = [f"{state.read:,} rows read", f"{state.written:,} written", f"{state.bad:,} bad"]
    counts += [f"{state.late:,} dropped late", f"{state.duplicates:,} duplicates"]
    if state.files:
        counts.append(f"{counted(state.files, 'file')} of {size_text(state.bytes_written)}")
    yield f"{_ENDS[outcome]}: {', '.join(counts)}; {_seconds(seconds)}"
    for topic, spans in sorted(state.spans.items()):
        yield f"  {topic}: {offsets_text(spans)}"
    for gap in state.lost:
        yield f"  lost: {gap}"
    yield from _unfinished(state)
    if state.replayed:
        again = "1 batch was" if state.replayed == 1 else f"{state.replayed:,} batches were"
        yield f"  {again} already written by an earlier run and not repeated"
    if state.windows and state.windows.groups:
        yield f"  {open_text(state)}"
    yield from _warnings(state.warnings)
    if guarantee:
        yield f"  guarantee: {guarantee}"
    if log:
        yield f"  log: {log}"


def _warnings(warnings: Warnings) -> Iterator[str]:
    yield from (f"  warning: {text}" for text in warnings.first)
    if warnings.between:
        yield f"  {counted(warnings.between, 'more warning')}; the last ones were:"
    yield from (f"  warning: {text}" for text in warnings.last)


def _unfinished(state: State) -> Iterator[str]:
    if state.untold:
        more = "1 more batch was" if state.untold == 1 else f"{state.untold:,} more batches were"
        yield f"  {more} committed while Spark was shutting down; their rows are not counted here"
    for topic, rows in state.unsure.items():
        yield (
            f"  up to {counted(rows, 'row')} more in topic {topic}, from a batch that was not committed and will "
            "be written "
            "again by the next run"
        )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 60 else duration_text(round(seconds * 1000))


def open_text(state: State) -> str:
    windows = state.windows
    assert windows is not None
    span = f" ({windows.first} to {windows.last})" if windows.first else ""
    are = "1 window is" if windows.groups == 1 else f"{windows.groups:,} windows are"
    return f"{are} still open{span}: not written yet; the next run continues with them"


def offsets_text(spans: Mapping[int, Span]) -> str:
    """Offset ranges such as "0: 0-250,000  1: 0-249,998", each excluding its second number."""
    shown = [f"{p}: {span.start:,}-{span.done:,}" for p, span in sorted(spans.items())[:_PARTITIONS]]
    more = len(spans) - len(shown)
    return "  ".join([*shown, f"and {more} more partitions"] if more > 0 else shown) or "no partitions"
