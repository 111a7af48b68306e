"""A power cut at any moment: with `kafkad.acks.fsync` what was acknowledged is there, and every partition opens."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad.wire.records import Record, build_batch, iter_batches, iter_records
from tests.broker import KafkadProcess
from tests.clients.asker import Asker
from tests.crash.power import RECORDER, Disk, Event, note, recorded

CUTS = [pytest.param(10, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.long)]
SHOWN = 300
SETTINGS = {
    "kafkad.acks.fsync": "true",
    "log.segment.bytes": "3000",
    "log.flush.scheduler.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "300",
    "offsets.topic.num.partitions": "2",
}
REFUSED = ("cannot be opened", "cannot become leader or follower", "cannot start", "Traceback", "is offline")

pytestmark = pytest.mark.timeout(1200)


class RecordedKafkad(KafkadProcess):
    """One whose changes of its disk are written down; `root` is the disk."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "disk"
        self.root.mkdir(parents=True)
        self.events = directory / "events"
        super().__init__(directory, SETTINGS, [self.root / "data"])

    def command(self) -> list[str]:
        environment = [f"PYTHONPATH={RECORDER}", f"RECORD_ROOT={self.root}", f"RECORD_TO={self.events}"]
        return ["env", *environment, *super().command()]


class Load:
    """Creates, writes, deletes, creates anew; notes what was acknowledged among what the broker did."""

    def __init__(self, kafkad: RecordedKafkad, seed: int) -> None:
        self._asker = Asker(kafkad.port)
        self._events = kafkad.events
        self._chance = random.Random(seed)
        self._sent = 0

    def run(self) -> None:
        self._create("compacted", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        self._create("plain", 2)
        for round_ in range(12):
            self._create(f"of-round-{round_}", 2)
            for _ in range(6):
                self._produce(f"of-round-{round_}", self._chance.randrange(2))
                self._produce("plain", self._chance.randrange(2))
                self._produce("compacted", 0)
            if round_ % 3 == 2:
                self._delete(f"of-round-{round_ - 1}")
                self._create(f"of-round-{round_ - 1}", 2)
            self._commit(round_)
            time.sleep(0.25)
        self._write_until_it_is_compacted()
        self._asker.client.close()

    def _write_until_it_is_compacted(self) -> None:
        """Which a busy machine may not have come to yet."""
        end = time.monotonic() + 60
        while b".swap" not in self._events.read_bytes():
            assert time.monotonic() < end, "nothing is compacted"
            self._produce("compacted", 0)
            time.sleep(0.1)

    def _create(self, topic: str, partitions: int, **config: str) -> None:
        configs = [{"name": name.replace("_", "."), "value": value} for name, value in config.items()]
        new = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": []}
        answer = self._asker.ask("CreateTopics", 4, {"topics": [{**new, "configs": configs}], "timeout_ms": 30000})
        assert answer.topics[0].error_code == 0, answer
        note(self._events, "created", topic, partitions)

    def _delete(self, topic: str) -> None:
        note(self._events, "deleted", topic)
        answer = self._asker.ask("DeleteTopics", 3, {"topic_names": [topic], "timeout_ms": 30000})
        assert answer.responses[0].error_code == 0, answer

    def _produce(self, topic: str, partition: int) -> None:
        records = []
        for delta in range(self._chance.randint(1, 8)):
            self._sent += 1
            value = b"%d" % self._sent + b"." * self._chance.randrange(200)
            records.append(Record(delta, 1_700_000_000_000 + self._sent, b"k%d" % self._chance.randrange(9), value))
        parts = [{"index": partition, "records": bytes(build_batch(records))}]
        question = {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": topic, "partition_data": parts}]}
        (answer,) = self._asker.ask("Produce", 7, question).responses[0].partition_responses
        assert answer.error_code == 0, answer
        for record in records:
            note(self._events, "acked", topic, partition, answer.base_offset + record.offset, record.key, record.value)

    def _commit(self, offset: int) -> None:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        question = {
            "group_id": "g", "generation_id": -1, "member_id": "", "retention_time_ms": -1,
            "topics": [{"name": "plain", "partitions": partitions}],
        }  # fmt: skip
        self._asker.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
        for _ in range(500):
            answer = self._asker.ask("OffsetCommit", 2, question)
            if not (code := answer.topics[0].partitions[0].error_code):
                break
            time.sleep(0.01)
        assert not code
        note(self._events, "committed", offset)


class Acknowledged(NamedTuple):
    topics: dict[str, int]
    records: dict[tuple[str, int], dict[int, tuple[bytes, bytes]]]
    committed: int


def acknowledged(events: list[Event]) -> Acknowledged:
    """Of topics that nobody has begun to delete."""
    topics: dict[str, int] = {}
    records: dict[tuple[str, int], dict[int, tuple[bytes, bytes]]] = {}
    committed = -1
    for kind, *rest in events:
        if kind == "created":
            topics[rest[0]] = rest[1]
        elif kind == "acked":
            topic, partition, offset, key, value = rest
            records.setdefault((topic, partition), {})[offset] = key, value
        elif kind == "deleted":
            del topics[rest[0]]
            for where in [where for where in records if where[0] == rest[0]]:
                del records[where]
        elif kind == "committed":
            committed = rest[0]
    return Acknowledged(topics, records, committed)


def stored(asker: Asker, topic: str, partition: int) -> Iterator[tuple[int, bytes, bytes]]:
    offset = 0
    while True:
        wanted = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
        question = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
        answer = asker.ask("Fetch", 4, question | {"topics": [{"topic": topic, "partitions": wanted}]})
        (part,) = answer.responses[0].partitions
        assert part.error_code == 0, f"{topic}-{partition} answers {part.error_code}"
        if not part.records:
            return
        view = memoryview(part.records)
        for at, header in iter_batches(view):
            yield from ((r.offset, r.key or b"", r.value or b"") for r in iter_records(view, at, header))
            offset = header.last_offset + 1


def problems(kafkad: KafkadProcess, expected: Acknowledged) -> Iterator[str]:
    asker = Asker(kafkad.port)
    there = {t.name: t for t in asker.ask("Metadata", 4, {"topics": None}).topics}
    for topic, partitions in expected.topics.items():
        if topic not in there or len(there[topic].partitions) != partitions:
            yield f"topic {topic} is gone"
            continue
        for partition in range(partitions):
            found = {offset: (key, value) for offset, key, value in stored(asker, topic, partition)}
            wanted = expected.records.get((topic, partition), {})
            if topic == "compacted":
                newest = {key: offset for offset, (key, _) in sorted(found.items())}
                lost = [at for at, (key, _) in wanted.items() if newest.get(key, -1) < at]
            else:
                lost = [at for at, record in wanted.items() if found.get(at) != record]
            if lost:
                yield f"{topic}-{partition} lost {len(lost)} of {len(wanted)} acknowledged records, first {lost[0]}"
    asker.client.close()
    yield from (line for line in kafkad.log.splitlines() if any(word in line for word in REFUSED))


def committed_offset(kafkad: KafkadProcess) -> int:
    asker = Asker(kafkad.port)
    question = {"group_id": "g", "topics": [{"name": "plain", "partition_indexes": [0]}]}
    asker.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    for _ in range(500):
        answer = asker.ask("OffsetFetch", 5, question)
        if not answer.error_code:
            break
        time.sleep(0.01)
    asker.client.close()
    return int(answer.topics[0].partitions[0].committed_offset)


def cuts(events: list[Event], chance: random.Random, count: int) -> list[int]:
    """So many: half of them anywhere, half right after something was acknowledged; and the end."""
    told = [at + 1 for at, event in enumerate(events) if event[0] in ("acked", "created", "committed")]
    anywhere = chance.sample(range(len(events)), count // 2)
    return sorted({*anywhere, *chance.sample(told, count // 2), len(events)})


@pytest.mark.parametrize("count", CUTS)
def test_nothing_acknowledged_is_lost(tmp_path: Path, count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}", file=sys.stderr)
    chance = random.Random(seed)
    kafkad = RecordedKafkad(tmp_path / "load")
    with kafkad:
        Load(kafkad, seed).run()
        kafkad.kill()
    events = recorded(kafkad.events)
    kinds = [event[0] for event in events]
    assert kinds.count("sync") > 200
    assert any(kind == "rename" and str(event[2]).endswith(".swap") for kind, event in zip(kinds, events, strict=True))
    bad: dict[str, list[str]] = {}
    for number, at in enumerate(cuts(events, chance, count)):
        disk, expected = Disk(kafkad.root, events[:at]), acknowledged(events[:at])
        kept = (0.0, 0.5, 1.0, 0.9)[number % 4]
        after = KafkadProcess(tmp_path / f"cut-{number}", SETTINGS, [tmp_path / f"cut-{number}" / "disk" / "data"])
        disk.image(tmp_path / f"cut-{number}" / "disk", chance, kept)
        if wrong := checked(after, expected):
            bad[f"cut-{number}, at {at} of {len(events)} events, {kept:.0%} of the rest kept"] = wrong
    told = [f"{cut}: {len(wrong)} problems, first {wrong[0][:SHOWN]}" for cut, wrong in bad.items()]
    assert not bad, f"{len(bad)} of {number + 1} images are bad:\n" + "\n".join(told)


def checked(after: KafkadProcess, expected: Acknowledged) -> list[str]:
    """The faults of the broker that is started on an image."""
    try:
        after.start()
        said: list[Any] = list(problems(after, expected))
        if expected.committed >= 0 and (got := committed_offset(after)) < expected.committed:
            said.append(f"the committed offset {expected.committed} is {got}")
        return said
    except (AssertionError, OSError) as error:
        return [str(error)]
    finally:
        if after.alive():
            after.kill()
