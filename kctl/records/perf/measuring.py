"""Numbers of a measurement: rates, percentiles, a histogram."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kctl.texts.output import Column

PERCENTILES = ((50.0, "p50_ms"), (95.0, "p95_ms"), (99.0, "p99_ms"), (99.9, "p999_ms"))
_BAR = "█"
_BUCKETS = (0.1, 0.2, 0.5)
"""Upper ends of buckets in one power of ten, of the next one."""

RATE_COLUMNS = (
    Column("topic", "The topic."),
    Column("records", "Records, without those of the warm-up.", "number"),
    Column("seconds", "How long they took.", "number"),
    Column("records_per_second", "Their rate.", "number", "RECORDS/S"),
    Column("mb_per_second", "The same in 1,000,000 bytes: of values sent, of batches read.", "number", "MB/S"),
)
LATENCY_COLUMNS = (
    Column("avg_ms", "Mean latency.", "number", "AVG"),
    Column("p50_ms", "Half of them took no longer.", "number", "P50"),
    Column("p95_ms", "95% took no longer.", "number", "P95"),
    Column("p99_ms", "99% took no longer.", "number", "P99"),
    Column("p999_ms", "99.9% took no longer.", "number", "P99.9"),
    Column("max_ms", "The longest.", "number", "MAX"),
)


class Latencies:
    """Single latencies, in microseconds."""

    def __init__(self) -> None:
        self._samples = array("Q")

    def __len__(self) -> int:
        return len(self._samples)

    def extend(self, microseconds: Sequence[int]) -> None:
        self._samples.extend(microseconds)

    def summary(self) -> dict[str, float | None]:
        ordered = sorted(self._samples)
        if not ordered:
            return dict.fromkeys((column.name for column in LATENCY_COLUMNS), None)
        values = {"avg_ms": sum(ordered) / len(ordered)}
        values |= {name: percentile(ordered, share) for share, name in PERCENTILES}
        values["max_ms"] = ordered[-1]
        return {name: round(value / 1000, 3) for name, value in values.items()}

    def histogram(self, width: int) -> Iterator[str]:
        """A line for each bucket of latencies (1, 2, 5, 10, 20 … ms), from the first to the last that has any."""
        counts: dict[float, int] = {}
        for sample in self._samples:
            end = _bucket_end(sample / 1000)
            counts[end] = counts.get(end, 0) + 1
        most = max(counts.values(), default=1)
        for end in _ends_between(min(counts, default=0.1), max(counts, default=0.1)):
            count = counts.get(end, 0)
            length = -(-count * width // most)
            yield f"{f'{end:g} ms':>9}  {_BAR * length:<{width}}  {count:,}".rstrip()


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that `share` percent of all do not exceed."""
    at = -(-len(ordered) * share // 100)
    return ordered[max(int(at), 1) - 1]


def _bucket_end(milliseconds: float) -> float:
    power = 1.0
    while True:
        for end in _BUCKETS:
            if milliseconds <= end * power:
                return round(end * power, 6)
        power *= 10


def _ends_between(first: float, last: float) -> Iterator[float]:
    power = 1.0
    while True:
        for end in _BUCKETS:
            value = round(end * power, 6)
            if value > last:
                return
            if value >= first:
                yield value
        power *= 10


class Rate(NamedTuple):
    records: int
    bytes: int
    seconds: float

    @property
    def records_s(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_s(self) -> float:
        return self.bytes / self.seconds / 1e6 if self.seconds > 0 else 0.0

    def fields(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records_s, 1),
            "mb_per_second": round(self.mb_s, 2),
        }

    def told(self, verb: str) -> str:
        return f"{self.records:,} records {verb}, {self.records_s:,.1f} records/s ({self.mb_s:.2f} MB/s)"


def latency_text(summary: dict[str, float | None]) -> str:
    """The latencies in the words and order of Kafka's own tools."""
    if summary["avg_ms"] is None:
        return "no latency was measured"
    percentiles = ", ".join(f"{summary[name]:.2f} ms {share:g}th" for share, name in PERCENTILES)
    return f"{summary['avg_ms']:.2f} ms avg latency, {summary['max_ms']:.2f} ms max latency, {percentiles}"
