"""A shard over a real log: nothing is applied before it is committed, and everybody is told once."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.log import Log
from kafkad.metrics import TopicProbe
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.markers import Marker
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import Waits
from kafkad.shard import Prepared, Shard, TransactionalProducer, batch, body_of
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timers
from kafkad.turns import at_once
from kafkad.wire import compression
from kafkad.wire.compression import Codec
from kafkad.wire.records import iter_batches, iter_records
from tests.fakes import FakeClock, FaultyFiles, HeldDisk
from tests.log.consistency import check
from tests.shard.pairs import Pair, Pairs

ME, OTHER = 1, 2
ALONE = Role(leader=ME, leader_epoch=4, partition_epoch=0, isr=(ME,), replicas=(ME,))
WITH_FOLLOWER = replace(ALONE, isr=(ME, OTHER), replicas=(ME, OTHER))
TP = TopicPartition("__consumer_offsets", 7)


class Made:
    def __init__(self, directory: Path, codec: int = 0, **config: int | bool) -> None:
        self.clock = FakeClock()
        self.files = FaultyFiles()
        self.disk = HeldDisk()
        self.failures: list[StorageError] = []
        self.ends: list[tuple[str, ErrorCode | None]] = []
        log_config = replace(LogConfig(cleanup_policy=frozenset({"compact"})), **config)
        self.log = Log.open(str(directory / str(TP)), log_config, self.files, self.clock, topic_partition=TP)
        waits = Waits(Timers(), self.clock, lambda call: None)
        held = ReplicaParts(broker_id=ME, clock=self.clock, waits=waits, durable=cast(Durable, self.disk))
        self.partition = Partition(TP, self.log, held, TopicProbe(), 0)
        parts = CoordinatorParts(self.clock, Timers(), self.failures.append, codec)
        self.shard: Shard[Pairs] = Shard(self.partition, parts, Pairs)
        self.shard.start_over()
        self.machine = self.shard.machine

    def lead(self, role: Role = ALONE) -> None:
        self.partition.become(role)
        self.shard.begin()

    def write(self, name: str, *pairs: Pair) -> None:
        self.shard.write(pairs or [Pair(name, "v")], partial(self._end, name))

    def write_all(self, name: str, *pairs: Pair) -> None:
        self.shard.write_all(pairs, partial(self._end, name))

    def _end(self, name: str, error: KafkaError | None) -> None:
        self.ends.append((name, error and error.code))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path)
    yield made
    made.files.heal()
    made.log.close()
    assert not check(made.log.directory)


def test_alone_a_write_is_applied_and_answered_before_it_returns(made: Made) -> None:
    made.lead()
    made.write("first", Pair("a", "1"), Pair("b", "2"))
    made.write("second", Pair("a", None))
    assert made.ends == [("first", None), ("second", None)]
    assert made.machine.pairs == {"b": "2"}
    assert made.log.end_offset == made.partition.high_watermark == 3


def test_what_is_written_are_batches_without_a_producer(made: Made) -> None:
    made.lead()
    made.write("first", Pair("a", "1"), Pair("b", None))
    made.shard.write([Pair("c", "3")], lambda error: None, base_sequence=0)
    view = memoryview(Path(made.log.segments[0].path(".log")).read_bytes())
    found = [
        (h.base_offset, h.leader_epoch, h.base_sequence, h.producer_id, h.attributes, h.base_timestamp,
         [(r.key, r.value) for r in iter_records(view, at, h)])
        for at, h in iter_batches(view)
    ]  # fmt: skip
    now = made.clock.now_ms()
    assert found == [
        (0, 4, -1, -1, 0, now, [(b"a", b"1"), (b"b", None)]),
        (2, 4, 0, -1, 0, now, [(b"c", b"3")]),
    ]


def test_what_is_too_much_for_one_batch_is_written_as_several_and_ended_once(tmp_path: Path) -> None:
    made = Made(tmp_path, max_message_bytes=1_000)
    made.lead(WITH_FOLLOWER)
    pairs = [Pair(f"{number}" * 100, None) for number in range(10)]
    made.write_all("all", *pairs)
    made.write_all("nothing")
    assert made.ends == [("nothing", None)]
    assert made.log.end_offset == 10
    made.partition.become(replace(ALONE, replicas=(ME, OTHER)))
    assert made.ends == [("nothing", None), ("all", None)]
    assert made.machine.applied == pairs
    view = memoryview(Path(made.log.segments[0].path(".log")).read_bytes())
    assert 1 < len(list(iter_batches(view))) < 10
    made.log.close()


def test_each_of_many_records_is_encoded_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.lead()
    encoded: list[Pair] = []
    encode = Pairs.encode
    monkeypatch.setattr(Pairs, "encode", lambda machine, pair: encoded.append(pair) or encode(machine, pair))
    pairs = [Pair(f"{number}", None) for number in range(10)]
    made.write_all("all", *pairs)
    assert made.machine.applied == encoded == pairs


def test_a_record_that_no_batch_can_have_is_told_and_keeps_no_other_back(tmp_path: Path) -> None:
    made = Made(tmp_path, max_message_bytes=1_000)
    made.lead()
    made.write_all("all", Pair("a", "1"), Pair("b", "2" * 1_000), Pair("c", "3"))
    assert made.ends == [("all", ErrorCode.MESSAGE_TOO_LARGE)]
    assert made.machine.pairs == {"a": "1", "c": "3"}
    made.log.close()


def test_nothing_is_applied_before_the_high_watermark_is_there(made: Made) -> None:
    made.lead(WITH_FOLLOWER)
    made.write("first")
    made.write("second")
    assert made.log.end_offset == 2
    assert not made.ends
    assert not made.machine.applied
    made.partition.become(replace(ALONE, replicas=(ME, OTHER)))
    assert made.ends == [("first", None), ("second", None)]
    assert [pair.key for pair in made.machine.applied] == ["first", "second"]
    made.write("third")
    assert made.ends[-1] == ("third", None)


def test_a_write_from_within_an_answer_comes_after_those_before_it(made: Made) -> None:
    made.lead(WITH_FOLLOWER)
    made.shard.write([Pair("first", "v")], lambda error: made.write("third"))
    made.write("second")
    made.partition.become(replace(ALONE, replicas=(ME, OTHER)))
    assert [pair.key for pair in made.machine.applied] == ["first", "second", "third"]
    assert made.ends == [("second", None), ("third", None)]


@pytest.mark.parametrize("lose", ["follower", "retire"])
def test_leadership_lost_while_waiting_is_told_and_nothing_is_applied(made: Made, lose: str) -> None:
    made.lead(WITH_FOLLOWER)
    made.write("first")
    made.write("second")
    if lose == "follower":
        made.partition.become(replace(WITH_FOLLOWER, leader=OTHER, leader_epoch=5))
    else:
        made.partition.retire()
    made.shard.end()
    assert made.ends == [("first", ErrorCode.NOT_COORDINATOR), ("second", ErrorCode.NOT_COORDINATOR)]
    assert not made.machine.applied
    assert made.machine.state == "unloaded"
    made.write("third")
    assert made.ends[-1] == ("third", ErrorCode.NOT_COORDINATOR)


def test_a_shard_that_ends_answers_whoever_waits_once(made: Made) -> None:
    made.lead(WITH_FOLLOWER)
    made.write("first")
    made.shard.end()
    made.partition.become(replace(ALONE, replicas=(ME, OTHER)))
    assert made.ends == [("first", ErrorCode.NOT_COORDINATOR)]
    assert not made.machine.applied


def test_too_few_in_sync_replicas_refuse_the_write(tmp_path: Path) -> None:
    made = Made(tmp_path, min_insync_replicas=2)
    made.lead(replace(WITH_FOLLOWER, isr=(ME,)))
    made.write("first")
    assert made.ends == [("first", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert made.log.end_offset == 0
    made.log.close()


def test_a_disk_that_refuses_is_reported_and_leaves_the_state_as_it_is(made: Made) -> None:
    made.lead()
    made.write("first")
    made.files.fail("pwrite", errno.ENOSPC)
    made.write("second")
    made.write("third")
    assert made.ends == [("first", None), ("second", ErrorCode.NOT_COORDINATOR), ("third", None)]
    assert list(made.machine.pairs) == ["first", "third"]
    assert len(made.failures) == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refused_write_is_told_as_coordinators_tell_it(
    made: Made, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, told: ErrorCode
) -> None:
    def refuse(*append: object) -> int:
        raise KafkaError(code)

    made.lead()
    monkeypatch.setattr(Partition, "append", refuse)
    made.write("first")
    assert made.ends == [("first", told)]
    assert not made.machine.applied


@pytest.mark.parametrize(
    ("limit", "code"),
    [("max_message_bytes", ErrorCode.MESSAGE_TOO_LARGE), ("segment_bytes", ErrorCode.RECORD_LIST_TOO_LARGE)],
)
def test_a_batch_above_the_limits_of_the_topic_is_refused(tmp_path: Path, limit: str, code: ErrorCode) -> None:
    made = Made(tmp_path, **{limit: 100})
    made.lead()
    made.write("fits", Pair("k", "v" * 25))
    made.write("does not", Pair("k", "v" * 50))
    assert made.ends == [("fits", None), ("does not", code)]
    made.log.close()


def test_what_can_be_seen_to_be_too_large_is_refused_before_any_of_it_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, max_message_bytes=100)
    made.lead()
    encoded: list[Pair] = []
    monkeypatch.setattr(Pairs, "encode", lambda machine, record: encoded.append(record))
    made.write("does not fit", Pair("k", "v" * 50), Pair("l", "v" * 50))
    assert made.ends == [("does not fit", ErrorCode.MESSAGE_TOO_LARGE)]
    assert not encoded
    made.log.close()


def test_what_compression_makes_small_enough_is_written(tmp_path: Path) -> None:
    made = Made(tmp_path, codec=Codec.GZIP, max_message_bytes=200)
    made.lead()
    made.write("fits", Pair("k", "v" * 700))
    assert made.ends == [("fits", None)]
    made.log.close()


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
def test_what_is_many_times_too_large_is_not_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    made = Made(tmp_path, codec=Codec.GZIP, **{limit: 1_000})
    made.lead()
    assert made.shard.most_bytes == 4_000
    compressed: list[int] = []
    compress = compression.compress

    def counted(codec: int, data: bytes) -> bytes:
        compressed.append(len(data))
        return compress(codec, data)

    monkeypatch.setattr(batch, "compress", counted)
    made.write("fits", Pair("k", "v" * 3_900))
    made.write("does not fit", Pair("k", "v" * 4_000))
    pairs = [Pair(str(number), "v" * 40) for number in range(100)]
    body = at_once(body_of(pairs, made.machine.encode))
    made.shard.write(pairs, partial(made._end, "prepared"), prepared=Prepared(body, lambda: None))
    code = ErrorCode.MESSAGE_TOO_LARGE if limit == "max_message_bytes" else ErrorCode.RECORD_LIST_TOO_LARGE
    assert made.ends == [("fits", None), ("does not fit", code), ("prepared", code)]
    assert len(compressed) == 1
    made.log.close()


def test_a_shard_that_is_not_loaded_takes_no_writes(made: Made) -> None:
    made.partition.become(ALONE)
    made.write("early")
    assert made.ends == [("early", ErrorCode.NOT_COORDINATOR)]
    assert made.log.end_offset == 0


# -- kafkad.acks.fsync


def test_with_acks_fsync_a_write_is_applied_when_it_is_on_the_disk(tmp_path: Path) -> None:
    made = Made(tmp_path, acks_fsync=True)
    made.lead()
    made.write("first")
    made.write("second")
    assert not made.ends
    made.disk.finish()
    assert made.ends == [("first", None)]
    assert [pair.key for pair in made.machine.applied] == ["first"]
    made.disk.finish()
    assert made.ends == [("first", None), ("second", None)]
    made.log.close()


def test_with_acks_fsync_both_the_disk_and_the_followers_are_waited_for(tmp_path: Path) -> None:
    made = Made(tmp_path, acks_fsync=True)
    made.lead(WITH_FOLLOWER)
    made.write("first")
    made.partition.become(replace(ALONE, leader_epoch=5, replicas=(ME, OTHER)))
    assert not made.ends
    made.disk.finish()
    assert made.ends == [("first", None)]
    made.log.close()


def test_an_fsync_that_fails_applies_nothing(tmp_path: Path) -> None:
    made = Made(tmp_path, acks_fsync=True)
    made.lead()
    made.write("first")
    made.disk.finish(StorageError("d", "gone"))
    assert made.ends == [("first", ErrorCode.NOT_COORDINATOR)]
    assert not made.machine.applied
    made.log.close()


def test_what_too_few_confirmed_in_the_end_is_refused_and_applied_for_the_log_has_it(tmp_path: Path) -> None:
    made = Made(tmp_path, acks_fsync=True, min_insync_replicas=2)
    made.lead(WITH_FOLLOWER)
    made.write("first")
    made.partition.update_config(replace(made.log.config, min_insync_replicas=1))
    made.partition.become(replace(WITH_FOLLOWER, leader_epoch=5, isr=(ME,)))
    made.partition.update_config(replace(made.log.config, min_insync_replicas=2))
    made.disk.finish()
    assert made.ends == [("first", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert [pair.key for pair in made.machine.applied] == ["first"]
    made.log.close()


# -- transactions


PRODUCER = TransactionalProducer(9, 0)


def committed(*, epoch: int = 0, commit: bool = True, version: int = 0) -> Marker:
    return Marker(PRODUCER.id, epoch, commit, 3, version, [TP])


def end(made: Made, name: str, marker: Marker) -> None:
    made.shard.end_transaction(marker, lambda error: made.ends.append((name, error and error.code)))


def write_in_transaction(made: Made, name: str, *pairs: Pair) -> None:
    made.shard.write(pairs, lambda error: made.ends.append((name, error and error.code)), 0, PRODUCER)


def test_what_is_written_in_a_transaction_waits_for_its_end(made: Made) -> None:
    made.lead()
    write_in_transaction(made, "first", Pair("a", "1"))
    write_in_transaction(made, "second", Pair("b", "2"))
    assert not made.machine.pairs
    assert made.partition.last_stable_offset == 0
    end(made, "end", committed())
    assert made.machine.pairs == {"a": "1", "b": "2"}
    assert made.ends == [("first", None), ("second", None), ("end", None)]
    assert made.partition.last_stable_offset == made.log.end_offset == 3
    view = memoryview(Path(made.log.segments[0].path(".log")).read_bytes())
    found = [(h.producer_id, h.producer_epoch, h.base_sequence, h.attributes) for _, h in iter_batches(view)]
    assert found == [(9, 0, 0, 0x10), (9, 0, 0, 0x10), (9, 0, -1, 0x30)]


def test_the_end_of_a_transaction_takes_effect_when_it_is_committed_and_in_its_place(made: Made) -> None:
    made.lead(WITH_FOLLOWER)
    write_in_transaction(made, "in it", Pair("a", "1"))
    end(made, "end", committed())
    made.write("behind", Pair("a", "2"))
    assert not made.ends
    made.partition.become(replace(ALONE, replicas=(ME, OTHER)))
    assert made.ends == [("in it", None), ("end", None), ("behind", None)]
    assert made.machine.pairs == {"a": "2"}


def test_an_end_that_is_not_committed_is_told_as_leaders_tell_it(made: Made) -> None:
    made.lead(WITH_FOLLOWER)
    end(made, "waits", committed())
    made.shard.end()
    end(made, "too late", committed())
    assert made.ends == [("waits", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("too late", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_an_end_of_an_old_epoch_is_refused_and_changes_nothing(made: Made) -> None:
    made.lead()
    made.shard.write([Pair("a", "1")], lambda error: None, 0, PRODUCER._replace(epoch=2))
    end(made, "old", committed(epoch=1))
    end(made, "of the one before", committed(epoch=2, version=2))
    assert made.ends == [(name, ErrorCode.INVALID_PRODUCER_EPOCH) for name in ("old", "of the one before")]
    assert made.log.end_offset == 1
    end(made, "its own", committed(epoch=3, commit=False, version=2))
    assert made.ends[-1] == ("its own", None)
    assert not made.machine.pairs
    assert not made.machine.pending
