"""The lag of consumer groups for /metrics, computed at each scrape, in pieces.

Under the names that Kafka's exporters for Prometheus give it; broker by broker, for the groups it coordinates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafkad.group.machine import GroupMachine
from kafkad.metrics import GAUGE, PAUSE, Family, Labels, label_text

READ_AT_ONCE = 500

EndOf = Callable[[str, int], int | None]
"""The high watermark of a partition; None where it is not known here."""


class _Row(NamedTuple):
    labels: str
    offset: int
    lag: int | None


def lag_families(machines: Iterable[GroupMachine], end_of: EndOf, limit: int) -> Iterator[Family | None]:
    """The lag of each partition that a group committed to; at most `limit` have series of their own, sums cover all."""
    rows: list[_Row] = []
    sums: Counter[tuple[str, str]] = Counter()
    members: list[tuple[Labels | str, float]] = []
    read = 0
    for machine in machines:
        for name in sorted(machine.names()):
            group = machine.groups.get(name)
            members.append(((("consumergroup", name),), group.size if group is not None else 0))
            for (topic, partition), offset in machine.offsets.offsets(name):
                end = end_of(topic, partition)
                lag = None if end is None else max(end - offset, 0)
                sums[name, topic] += lag or 0
                if len(rows) < limit:
                    rows.append(_Row(_labels(name, topic, partition), offset, lag))
                read += 1
                if not read % READ_AT_ONCE:
                    yield PAUSE
            if not len(members) % READ_AT_ONCE:
                yield PAUSE
    yield from _families(rows, sums, members)


def _families(
    rows: list[_Row], sums: Counter[tuple[str, str]], members: list[tuple[Labels | str, float]]
) -> Iterator[Family]:
    prefix = "kafka_consumergroup"
    yield Family(f"{prefix}_members", GAUGE, "Members of the group.", members)
    yield Family(
        f"{prefix}_current_offset", GAUGE, "What the group committed.", ((row.labels, row.offset) for row in rows)
    )
    yield Family(
        f"{prefix}_lag",
        GAUGE,
        "Records that consumers can read and the group has not committed.",
        ((row.labels, row.lag) for row in rows if row.lag is not None),
    )
    yield Family(
        f"{prefix}_lag_sum",
        GAUGE,
        "The group's lag over all partitions of the topic.",
        (((("consumergroup", group), ("topic", topic)), lag) for (group, topic), lag in sums.items()),
    )


def _labels(group: str, topic: str, partition: int) -> str:
    return label_text((("consumergroup", group), ("topic", topic), ("partition", str(partition))))
