"""Loading a log gives the state that its writer had; what is damaged in it is reported, and the rest is loaded."""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.config import LogConfig
from kafkad.errors import KafkaError, StorageError
from kafkad.log.damage import Damage
from kafkad.log.files import Files, may_pass
from kafkad.log.log import Log
from kafkad.log.segment import Segment
from kafkad.metrics import TopicProbe
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import Waits
from kafkad.shard import Shard
from kafkad.shard.loading import Abandoned, Loader
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timers
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import BATCH_HEADER, PREFIX_SIZE, Record, build_batch, iter_batches, seal
from tests.fakes import FakeClock
from tests.shard.pairs import Pair, Pairs

TP = TopicPartition("__consumer_offsets", 3)
SMALL = LogConfig(
    segment_bytes=2048, index_interval_bytes=256, segment_index_bytes=1 << 16, cleanup_policy=frozenset({"compact"})
)


class Live:
    """A shard that is written to, and its log loaded again."""

    def __init__(self, directory: Path, codec: int = 0) -> None:
        self.log = Log.open(str(directory / str(TP)), SMALL, Files(), FakeClock(), topic_partition=TP)
        waits = Waits(Timers(), FakeClock(), lambda call: None)
        parts = ReplicaParts(broker_id=1, clock=FakeClock(), waits=waits, durable=cast(Durable, None))
        self.partition = Partition(TP, self.log, parts, TopicProbe(), 0)
        self.partition.become(Role(leader=1, leader_epoch=1, isr=(1,), replicas=(1,)))
        parts = CoordinatorParts(FakeClock(), Timers(), lambda error: None, codec)
        self.shard: Shard[Pairs] = Shard(self.partition, parts, Pairs)
        self.shard.start_over()
        self.shard.begin()

    def write(self, *pairs: Pair) -> None:
        errors: list[object] = []
        self.shard.write(pairs, errors.append)
        assert errors == [None]

    def append(self, batch: bytearray) -> None:
        view = memoryview(batch)
        self.partition.append(view, 0, len(view), BATCH_HEADER.unpack_from(view))

    def write_transactional(self, producer_id: int, sequence: int, *pairs: Pair) -> None:
        """As another part of the broker would, on behalf of a producer's transaction."""
        records = [Record(number, 9, *self.shard.machine.encode(pair)) for number, pair in enumerate(pairs)]
        self.append(
            build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        )
        for pair in pairs:
            self.shard.machine.apply(pair, producer_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        marker = build_marker(ControlRecord(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=9)
        self.append(marker)
        self.shard.machine.end_transaction(producer_id, commit)


def load(log: Log) -> tuple[Pairs, Loader]:
    machine = Pairs()
    loader = Loader(log, machine, lambda: True)
    asyncio.run(loader.run())
    return machine, loader


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    yield live
    live.log.close()


KEYS = st.sampled_from("abcdefgh")
PAIR = st.builds(Pair, KEYS, st.none() | st.text("xyz", max_size=40))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(PAIR, min_size=1, max_size=8)),
        st.tuples(st.just("transactional"), st.integers(0, 2), st.lists(PAIR, min_size=1, max_size=4)),
        st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(STEPS, st.sampled_from((0, 1, 3)))
def test_the_state_after_loading_is_the_state_before(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple], codec: int
) -> None:
    live = Live(tmp_path_factory.mktemp("log"), codec)
    sequences: dict[int, int] = {}
    for step in steps:
        match step:
            case ("write", pairs):
                live.write(*pairs)
            case ("transactional", producer, pairs):
                live.write_transactional(producer, sequences.get(producer, 0), *pairs)
                sequences[producer] = sequences.get(producer, 0) + len(pairs)
            case ("end", producer, commit) if live.shard.machine.pending.get(producer):
                live.end_transaction(producer, commit)
    machine, loader = load(live.log)
    assert machine.pairs == live.shard.machine.pairs
    assert machine.pending == live.shard.machine.pending
    assert not loader.damaged
    live.log.close()


def test_of_a_key_only_the_last_record_is_applied_in_the_order_of_the_last_ones(live: Live) -> None:
    live.write(Pair("a", "1"), Pair("b", "1"))
    live.write(Pair("c", "1"))
    live.write(Pair("a", "2"), Pair("b", None))
    machine, loader = load(live.log)
    assert machine.applied == [Pair("c", "1"), Pair("a", "2"), Pair("b", None)]
    assert loader.records == 5


def test_kinds_that_are_not_known_are_passed_over(live: Live) -> None:
    live.write(Pair("?new", "1"), Pair("a", "1"))
    machine, loader = load(live.log)
    assert machine.pairs == {"a": "1"}
    assert not loader.damaged


def test_a_corrupt_record_is_reported_with_its_place(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    live.write(Pair("a", "1"), Pair("!", "1"))
    live.write(Pair("b", "1"))
    live.write(Pair("c", "1"), Pair("!?", "1"))
    with caplog.at_level(logging.ERROR):
        machine, loader = load(live.log)
    assert machine.pairs == {"a": "1", "b": "1", "c": "1"}
    assert loader.damaged == 2
    path = live.log.segments[0].path(".log")
    positions = [at for at, _ in iter_batches(memoryview(Path(path).read_bytes()))]
    assert f"{path}, position {positions[0]}, offset 1: not a pair" in caplog.text
    assert f"{path}, position {positions[2]}, offset 4: not a pair" in caplog.text


def test_records_without_a_key_are_reported(live: Live) -> None:
    live.append(build_batch([Record(0, 1, None, b"v"), Record(1, 1, b"a", b"1")]))
    machine, loader = load(live.log)
    assert machine.pairs == {"a": "1"}
    assert loader.damaged == 1


def test_bytes_behind_the_last_record_of_a_batch_are_reported(live: Live) -> None:
    batch = build_batch([Record(0, 1, b"a", b"1")]) + b"more"
    struct.pack_into(">i", batch, 8, len(batch) - PREFIX_SIZE)
    seal(memoryview(batch), 0, len(batch))
    live.append(batch)
    live.write(Pair("b", "2"))
    machine, loader = load(live.log)
    assert machine.pairs == {"a": "1", "b": "2"}
    assert loader.damaged == 1


def flip_a_value(data: bytearray, at: int) -> None:
    data[at + 70] ^= 0xFF


def break_the_length(data: bytearray, at: int) -> None:
    data[at + 8] = 0x7F


def break_the_magic(data: bytearray, at: int) -> None:
    data[at + 16] = 9


@pytest.mark.parametrize("damage", [flip_a_value, break_the_length, break_the_magic])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_damaged_batch_is_reported_and_what_can_be_found_again_is_loaded(
    live: Live, damage: Callable[[bytearray, int], None], segment: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(60):
        live.write(Pair(f"key {number}", "v" * 20))
    assert len(live.log.segments) > 2
    path = live.log.segments[segment].path(".log")
    data = bytearray(Path(path).read_bytes())
    batches = list(iter_batches(memoryview(data)))
    at, header = batches[3]
    damage(data, at)
    Path(path).write_bytes(data)
    with caplog.at_level(logging.ERROR):
        machine, loader = load(live.log)
    assert loader.damaged == 1
    assert f"{path}, position {at}, offset {header.base_offset}: " in caplog.text
    missing = {f"key {number}" for number in range(60)} - machine.pairs.keys()
    assert f"key {header.base_offset}" in missing
    # Without its length, the next batch that the index names (every 256 bytes) is where it goes on.
    assert len(missing) <= (1 if damage is flip_a_value else 6)


def test_the_machine_is_told_of_damage_in_its_place(live: Live) -> None:
    told: list[Damage] = []
    live.log.on_damage = lambda _, damage: told.append(damage)
    for number in range(4):
        live.write(Pair("a", str(number) * 20))
    path = Path(live.log.segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    at = [at for at, _ in iter_batches(memoryview(data))][2]
    flip_a_value(data, at)
    path.write_bytes(data)
    machine, _ = load(live.log)
    [(where, known)] = machine.missing
    assert where.startswith(f"{path}, position {at}, offset 2: ")
    assert known == {"a": "1" * 20}, "of what is ahead of it, and of nothing behind"
    assert machine.pairs == {"a": "3" * 20}
    assert [(damage.position, damage.first, damage.next) for damage in told] == [(at, 2, 3)], "the log tells of it"
    with pytest.raises(KafkaError, match="damaged"):
        live.log.read(2, 1000, 4)


def test_damage_that_recovery_found_is_stepped_over(live: Live, tmp_path: Path) -> None:
    for number in range(60):
        live.write(Pair(f"key {number}", "v" * 20))
    path = Path(live.log.segments[1].path(".log"))
    first = live.log.segments[1].base
    live.log.close(clean=False)
    data = bytearray(path.read_bytes())
    flip_a_value(data, 0)
    path.write_bytes(data)
    log = Log.open(str(tmp_path / str(TP)), SMALL, Files(), FakeClock(), topic_partition=TP, clean=False)
    assert log.damage
    machine, loader = load(log)
    assert machine.pairs.keys() == {f"key {number}" for number in range(60) if number != first}
    assert loader.damaged == 1
    log.close()


def test_a_file_that_cannot_be_opened_now_is_an_error_of_the_disk(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is only needed to say where a record stands."""

    def refuse(segment: Segment, offset: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    live.write(Pair("!", "1"))
    monkeypatch.setattr(Segment, "locate", refuse)
    with pytest.raises(StorageError) as refused:
        load(live.log)
    assert may_pass(refused.value)


def test_a_load_that_nobody_wants_any_more_ends(live: Live) -> None:
    live.write(*[Pair(f"key {number}", "v") for number in range(100)])
    with pytest.raises(Abandoned):
        asyncio.run(Loader(live.log, Pairs(), lambda: False).run())


def test_many_places_of_damage_are_not_all_told(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    live.write(*[Pair(f"!{number}", "v") for number in range(30)], Pair("a", "1"))
    with caplog.at_level(logging.ERROR):
        machine, _ = load(live.log)
    assert machine.pairs == {"a": "1"}
    assert len(caplog.records) == 11
    assert "20 more" in caplog.text
