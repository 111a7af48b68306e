"""Transactions in a directory that another broker left behind: whatever their states, they go on and are ended.

Each id has a topic and a group of its own. What its producer had decided is brought to all partitions by the broker
that takes over; what was open is ended by its producer, by the next one, or by its time-out.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, home_partition
from kafkad.txn.records import decode, encode
from kafkad.txn.transaction import LAST_CLIENT_EPOCH, PREPARED, Transaction
from kafkad.wire.records import Record, build_batch, iter_batches, iter_records
from tests.broker import KafkadProcess
from tests.clients.conftest import Broker
from tests.crash.deaths import DeadlyKafkad, Death
from tests.log.consistency import check
from tests.oracle.adoption import AdoptingKafka, properties
from tests.oracle.kafka import Kafka, missing
from tests.txn.producer import RawProducer
from tests.txn.raw import Raw, Tp

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

STATES, GROUPS = 24, 5
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATES),
    "offsets.topic.num.partitions": str(GROUPS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
SECOND_MARKERS = rf"/(.*-1|{GROUPS_TOPIC}-\d+)/"
"""Logs in which the markers of decided transactions are missing; the first partition of their topics has its own."""
SOURCE = ("source", 0)
TIMEOUT_MS, SHORT_MS = 300_000, 25_000
SECONDS = 60

COMMITS = {"committed", "decided to commit", "open, to commit"}
DECIDED = ("decided to commit", "decided to abort")
OPEN = ("open, to commit", "open, to abort", "open, to fence", "open, to time out")
SETTLED = ("empty", "committed", "aborted")
FATES = (*SETTLED, *OPEN, *DECIDED)


class Story(NamedTuple):
    """What becomes of one transactional id."""

    name: str
    fate: str
    new: bool
    epoch: int

    @property
    def partitions(self) -> list[Tp]:
        return [(f"t-{self.name}", 0), (f"t-{self.name}", 1)]

    @property
    def home(self) -> Tp:
        """Where its state is kept."""
        return TRANSACTIONS_TOPIC, home_partition(self.name, STATES)


def stories(ways: tuple[bool, ...]) -> list[Story]:
    """All fates of old and new clients, at their first epoch and at the last that a client may have.

    Those that are decided have partitions of `__transaction_state` of their own, so that what follows can be cut off.
    """
    taken: set[Tp] = set()
    told: list[Story] = []
    for fate in reversed(FATES):
        for new in ways:
            for epoch in (0, LAST_CLIENT_EPOCH):
                for number in count():
                    words = f"{fate.replace(', ', '-').replace(' ', '-')}-{'new' if new else 'old'}-{epoch}-{number}"
                    story = Story(words, fate, new, epoch)
                    if story.home not in taken:
                        break
                if fate in DECIDED:
                    taken.add(story.home)
                told.append(story)
    return told[::-1]


class Writer:
    """Acts the stories on a broker, and keeps what their producers know."""

    def __init__(self, ways: tuple[bool, ...]) -> None:
        self.stories = stories(ways)
        self.producers: dict[Story, RawProducer] = {}

    def begin(self, port: int) -> None:
        with asking(port) as raw:
            raw.create(SOURCE[0], 1)
            raw.coordinator([story.name for story in self.stories], 1)
            raw.coordinator([story.name for story in self.stories], 0)
            for story in self.stories:
                raw.create(story.partitions[0][0], 2)
                producer = self.producers[story] = RawProducer(raw, story.name, new=story.new)
                producer.begin(SHORT_MS if story.fate == "open, to time out" else TIMEOUT_MS)

    def settle(self, port: int) -> None:
        with asking(port) as raw:
            for story, producer in self._at(raw, SETTLED):
                if story.fate != "empty":
                    act(producer, story, b"first")
                    producer.end(commit=story.fate == "committed")

    def leave(self, port: int) -> None:
        """Transactions that are open, and then those that are decided."""
        with asking(port) as raw:
            begun = list(self._at(raw, (*OPEN, *DECIDED)))
            for story, producer in begun:
                act(producer, story, b"first")
            for story, producer in begun:
                if story.fate in DECIDED:
                    producer.end(commit=story.fate in COMMITS)

    def _at(self, raw: Raw, fates: tuple[str, ...]) -> Iterator[tuple[Story, RawProducer]]:
        until_all_is_there(raw, [story.name for story in self.stories])
        for story in self.stories:
            if story.fate in fates:
                producer = self.producers[story]
                producer.raw = raw
                producer.epoch = story.epoch
                yield story, producer

    def raise_epochs(self, directory: Path) -> None:
        """Of ids whose story is that of a last epoch, as if their producers had begun so often."""
        for story in self.stories:
            if story.epoch:
                path = log_of(directory, story.home)
                offset, known = last_record(path, story.name)
                key, value = encode(known._replace(epoch=story.epoch), version_of(path))
                batch = bytearray(build_batch([Record(0, known.updated_ms, key, value)]))
                batch[:8] = (offset + 1).to_bytes(8, "big")
                batch[12:16] = bytes(4)  # the leader epoch
                with path.open("ab") as log:
                    log.write(batch)

    def check_left(self, directory: Path) -> None:
        """Each id is in the state that its story says, and the markers of decided ones are missing."""
        for story in self.stories:
            _, known = last_record(log_of(directory, story.home), story.name)
            lacking = [tp for tp in story.partitions if not has_marker(log_of(directory, tp), known.producer_id)]
            assert known.epoch == story.epoch + (story.new and story.fate not in ("empty", *OPEN)) or not known.epoch
            if story.fate in DECIDED:
                assert known.state in PREPARED, known
                assert lacking == story.partitions[1:]
            elif story.fate in OPEN:
                assert known.state.label == "Ongoing", known
                assert lacking == story.partitions
            else:
                assert known.state.label in ("Empty", "CompleteCommit", "CompleteAbort"), known


@contextmanager
def asking(port: int) -> Iterator[Raw]:
    raw = Raw(port)
    try:
        yield raw
    finally:
        raw.close()


def until_all_is_there(raw: Raw, names: list[str]) -> None:
    raw.coordinator(names, 1)
    raw.coordinator(names, 0)
    raw.until_loaded(names)
    raw.know(*(f"t-{name}" for name in names))
    for name in names:
        raw.committed_offset(name, SOURCE, stable=False)


def act(producer: RawProducer, story: Story, value: bytes) -> None:
    offset = 7 if value == b"first" else 8
    producer.write(dict.fromkeys(story.partitions, value), story.name, {SOURCE: offset})


# The logs that were left behind


def log_of(directory: Path, tp: Tp) -> Path:
    [path] = (directory / f"{tp[0]}-{tp[1]}").glob("*.log")
    return path


def records_of(path: Path, name: str) -> Iterator[tuple[int, Record]]:
    """Position and record of each that is of this id."""
    data = memoryview(path.read_bytes())
    for at, header in iter_batches(data):
        for record in iter_records(data, at, header):
            found = decode(record.key or b"", record.value)
            if isinstance(found, Transaction) and found.id == name:
                yield at, record


def last_record(path: Path, name: str) -> tuple[int, Transaction]:
    """The last offset of the log, and what was last written of the id."""
    data = memoryview(path.read_bytes())
    offset = max(header.base_offset + header.last_offset_delta for _, header in iter_batches(data))
    *_, (_, record) = records_of(path, name)
    found = decode(record.key or b"", record.value)
    assert isinstance(found, Transaction)
    return offset, found


def version_of(path: Path) -> int:
    """Of the values in a log of states."""
    data = memoryview(path.read_bytes())
    values = [record.value or b"" for at, header in iter_batches(data) for record in iter_records(data, at, header)]
    return int.from_bytes(values[-1][:2], "big")


def has_marker(path: Path, producer_id: int) -> bool:
    data = memoryview(path.read_bytes())
    return any(header.is_control and header.producer_id == producer_id for _, header in iter_batches(data))


def cut_behind_decisions(directory: Path, told: list[Story]) -> None:
    """What a kill would leave that comes behind the decisions and their first markers: nothing else is cut off with it,
    for they were the last to be made."""
    decided = [story for story in told if story.fate in DECIDED]
    of_decided: set[int] = set()
    for story in decided:
        path = log_of(directory, story.home)
        of_decided.add(last_record(path, story.name)[1].producer_id)
        for at, record in records_of(path, story.name):
            found = decode(record.key or b"", record.value)
            if isinstance(found, Transaction):
                of_decided.add(found.producer_id)
                if found.state in PREPARED:
                    cut(path, after=at)
    for path in [
        *directory.glob(f"{GROUPS_TOPIC}-*/*.log"),
        *(log_of(directory, story.partitions[1]) for story in decided),
    ]:
        data = memoryview(path.read_bytes())
        markers = [at for at, header in iter_batches(data) if header.is_control and header.producer_id in of_decided]
        if markers:
            cut(path, at=min(markers))


def cut(path: Path, at: int | None = None, after: int | None = None) -> None:
    data = memoryview(path.read_bytes())
    if after is not None:
        at = next((begin for begin, _ in iter_batches(data) if begin > after), len(data))
    with path.open("r+b") as log:
        log.truncate(at)


# Who writes and who reads


def by_kafkad(scratch: Path, ending: str) -> Writer:
    writer = Writer((False, True))
    kafkad = DeadlyKafkad(scratch / "first", SETTINGS, log_dirs=[scratch / "data"])
    with kafkad:
        writer.begin(kafkad.port)
        kafkad.stop()
        writer.raise_epochs(scratch / "data")
        kafkad.start()
        writer.settle(kafkad.port)
        kafkad.arm(Death(SECOND_MARKERS, 0, "markers"))
        writer.leave(kafkad.port)
        if ending == "killed":
            kafkad.kill()
        else:
            kafkad.stop()
    writer.check_left(scratch / "data")
    return writer


def by_kafka(release: str, scratch: Path) -> Writer:
    """Of 4.3 the partitions: it keeps its own metadata in a way that no broker with a ZooKeeper knows."""
    writer = Writer((False, True) if release == "4.3" else (False,))
    data = scratch / "data"
    with Kafka(release, data=data, heap="512m", settings=SETTINGS) as kafka:
        writer.begin(kafka.ports[0])
        kafka.restart(meanwhile=lambda: writer.raise_epochs(data))
        writer.settle(kafka.ports[0])
        writer.leave(kafka.ports[0])
        time.sleep(1)  # it answers before the markers are written
        kafka.brokers[0].kill()
    cut_behind_decisions(data, writer.stories)
    if release == "4.3":
        shutil.rmtree(data / "__cluster_metadata-0")
        cluster = properties(data / "meta.properties")["cluster.id"]
        (data / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={cluster}\n")
        for unknown in ("bootstrap.checkpoint",):
            (data / unknown).unlink(missing_ok=True)
    writer.check_left(data)
    return writer


WRITERS: Mapping[str, Callable[[Path], Writer]] = {
    "a kafkad that was stopped": lambda scratch: by_kafkad(scratch, "stopped"),
    "a kafkad that was killed": lambda scratch: by_kafkad(scratch, "killed"),
    "a Kafka 3.9": lambda scratch: by_kafka("3.9", scratch),
    "a Kafka 4.3": lambda scratch: by_kafka("4.3", scratch),
}


def reader_on(kind: str, scratch: Path) -> AbstractContextManager[Broker]:
    if kind == "Kafka 3.9":
        return AdoptingKafka(scratch / "data", SETTINGS)
    return KafkadProcess(scratch / "second", SETTINGS, log_dirs=[scratch / "data"])


long = pytest.mark.long


@pytest.mark.client("data directories", "transactions of {written_by}, ended by {read_by}")
@pytest.mark.parametrize(
    ("written_by", "read_by"),
    [
        ("a kafkad that was killed", "Kafka 3.9"),
        pytest.param("a kafkad that was stopped", "Kafka 3.9", marks=long),
        ("a kafkad that was stopped", "kafkad"),
        ("a kafkad that was killed", "kafkad"),
        pytest.param("a Kafka 3.9", "kafkad", marks=long),
        pytest.param("a Kafka 3.9", "Kafka 3.9", marks=long),
        pytest.param("a Kafka 4.3", "kafkad", marks=long),
        pytest.param("a Kafka 4.3", "Kafka 3.9", marks=long),
    ],
)
def test_transactions_go_on(written_by: str, read_by: str, tmp_path: Path) -> None:
    for release in re.findall(r"[34]\.\d", written_by + read_by):
        if reason := missing(release):
            pytest.skip(reason)
    writer = WRITERS[written_by](tmp_path)
    with reader_on(read_by, tmp_path) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with asking(port) as raw:
            end(raw, writer)
            for story in writer.stories:
                check_ended(raw, story, [b"first"] if story.fate in COMMITS else [], 7)
            for story in writer.stories:
                go_on(raw, story)
    for partition in sorted((tmp_path / "data").iterdir()):
        if partition.is_dir():
            assert check(str(partition)) == [], partition


def end(raw: Raw, writer: Writer) -> None:
    """What is open."""
    names = [story.name for story in writer.stories]
    until_all_is_there(raw, names)
    for story, producer in writer.producers.items():
        producer.raw = raw
        producer.new &= raw.serves("EndTxn", 5)
        if story.fate in ("open, to commit", "open, to abort"):
            raw.settled(story.name)
            producer.end(commit=story.fate in COMMITS)
        elif story.fate == "open, to fence":
            assert raw.describe(story.name).transaction_state == "Ongoing"
            producer.begin()


def check_ended(raw: Raw, story: Story, values: list[bytes], offset: int) -> None:
    """By whoever had to; readers see what was committed, and nothing is left open."""
    until = time.monotonic() + SECONDS
    while (state := raw.settled(story.name).transaction_state) == "Ongoing":
        assert story.fate == "open, to time out"
        assert time.monotonic() < until
        time.sleep(0.2)
    assert state in ("Empty", "CompleteCommit", "CompleteAbort"), (story, state)
    for tp in story.partitions:
        assert raw.committed(tp) == values, (story, tp)
        assert raw.offsets(tp) == raw.offsets(tp, isolation=0), f"{story}: something is open in {tp}"
        assert all(one.current_txn_start_offset < 0 for one in raw.producers(tp).active_producers), story
    assert raw.committed_offset(story.name, SOURCE) == (offset if values else -1), story


def go_on(raw: Raw, story: Story) -> None:
    """The id can be used."""
    producer = RawProducer(raw, story.name, new=story.new and raw.serves("EndTxn", 5))
    producer.begin()
    values = [b"first"] if story.fate in COMMITS else []
    for value, commit in ((b"second", True), (b"third", False)):
        act(producer, story, value)
        producer.end(commit=commit)
    check_ended(raw, story, [*values, b"second"], 8)
