"""Compaction by a running broker in figures, kafkad beside real Kafka 3.9 (`compaction.py` has the worker alone).

    python -m tests.bench.cleaner [--only TEXT] [--quick] [--without kafka|kafkad]

A gigabyte is produced to a topic that is not compacted yet; then it becomes one, and the clock runs until the
checkpoint of the cleaner is past it. Exits 1 when a promise is not kept. Run nothing else meanwhile.

The p99 of all requests is made by hiccups of the machine where it has any (0.3 to 2.4 ms for the same broker with
nothing beside it: docs/decisions/2026-11-22-requests-beside-compaction.md). Compaction goes on all the time, so what it
does to requests shows in every quarter of a second: the p99 of the typical one is compared, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from kafkad.log.checkpoint import CLEANED_OFFSETS, read_offsets
from kafkad.log.files import Files
from kafkad.names import TopicPartition
from tests.bench.compared import KAFKAD, Measurement, Promise, Side, Values, main
from tests.bench.figures import create, new_topic
from tests.bench.measured import peak_mb, process_tree
from tests.clients.probes import Asker

MB = 1_000_000
SEGMENT_BYTES = 128 * MB
BUFFER_BYTES = 128 << 20
LONGEST_S = 300
ROUNDS = 5
_TOPIC, _SET = 2, 0
_STEADY = {"topic": "steady", "recs": 1, "msg": 1000, "rate": 2000, "doze": 1}


def small_records(side: Side) -> Values:
    return compaction(side, "100 B", recs=1000, msg=81, keys=1_000_000)


def large_records(side: Side) -> Values:
    return compaction(side, "1 KB", recs=100, msg=978, keys=100_000)


def compaction(side: Side, name: str, *, recs: int, msg: int, keys: int) -> Values:
    """The median of each figure over some rounds: a compaction of 1 KB records takes two seconds, which is short."""
    asker = Asker(side.port)
    create(asker, new_topic("steady"))
    dirt = {"recs": recs, "msg": msg, "keys": keys * side.bench.size, "total": 1000 * MB * side.bench.size}
    rounds = [dict(compaction_once(side, asker, f"dirty-{number}", dirt)) for number in range(ROUNDS)]
    asker.client.close()
    for figure in rounds[0]:
        yield f"{name} records: {figure}", median(each[figure] for each in rounds)


def compaction_once(side: Side, asker: Asker, topic: str, dirt: Mapping[str, float]) -> Values:
    """A tenth of the records have a key that does not come again."""
    generator, share = side.bench.generator, side.bench.size
    create(asker, new_topic(topic, segment_bytes=str(round(SEGMENT_BYTES * share))))
    partition = side.log_directory() / f"{topic}-0"
    generator.run("produce", side.port, topic=topic, **dirt)
    generator.run("produce", side.port, **_STEADY, n=4_000)
    alone = generator.run("produce", side.port, **_STEADY, n=16_000 * share)
    *closed, active = segments(partition)
    dirty, end = sum(size for _, size in closed), active[0]
    with generator.begin("produce", side.port, **_STEADY, secs=LONGEST_S) as steady:
        begin = time.perf_counter()
        compact(asker, topic)
        wait_until_clean(side, topic, end)
        took = time.perf_counter() - begin
        beside = steady.stop()
    memory = max((peak_mb(pid) for pid in process_tree(side.pid) if pid != side.pid), default=0.0)
    left = sum(size for base, size in segments(partition) if base < end)
    assert left < dirty / 2, f"of {dirty} bytes {left} are left"
    yield "compaction", dirty / MB / took
    yield "produce p99, to that before", beside.p99 / alone.p99
    yield "produce p99 before", alone.p99 / 1000
    yield "produce p99 meanwhile", beside.p99 / 1000
    yield "typical produce p99, to that before", beside.typical_p99 / alone.typical_p99
    if side.name == KAFKAD:
        yield "memory of the worker", memory


def segments(partition: Path) -> list[tuple[int, int]]:
    """(base offset, size), the active one last."""
    return sorted((int(path.stem), path.stat().st_size) for path in partition.glob("*.log"))


def compact(asker: Asker, topic: str) -> None:
    wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    changes = [{"name": name, "config_operation": _SET, "value": value} for name, value in wanted.items()]
    resource = {"resource_type": _TOPIC, "resource_name": topic, "configs": changes}
    answer = asker.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
    assert not answer.responses[0].error_code, answer


def wait_until_clean(side: Side, topic: str, end: int) -> None:
    """Until everything before `end` is. Looks rarely: this process would be in the way of what is measured."""
    checkpoint = str(side.log_directory() / CLEANED_OFFSETS)
    late = time.monotonic() + LONGEST_S
    while read_offsets(checkpoint, Files()).get(TopicPartition(topic, 0), 0) < end:
        if time.monotonic() > late:
            raise RuntimeError(f"not compacted within {LONGEST_S} s")
        time.sleep(0.05)


def _promises(name: str, least_mb_s: int) -> list[Promise]:
    return [
        Promise(name=f"{name} records: compaction", unit="MB/s", limit=least_mb_s, at_least=True),
        Promise(name=f"{name} records: produce p99, to that before", unit="x", limit=2),
        Promise(name=f"{name} records: produce p99 before", unit="ms"),
        Promise(name=f"{name} records: produce p99 meanwhile", unit="ms"),
        Promise(name=f"{name} records: typical produce p99, to that before", unit="x", limit=2),
        Promise(name=f"{name} records: memory of the worker", unit="MB", limit=BUFFER_BYTES / (1 << 20)),
    ]


SETTINGS = {
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(BUFFER_BYTES),
}
MEASUREMENTS = (
    Measurement(small_records, _promises("100 B", 30), SETTINGS),
    Measurement(large_records, _promises("1 KB", 150), SETTINGS),
)

if __name__ == "__main__":
    main(__doc__, MEASUREMENTS)
