"""The broker is killed at chosen writes of its transactions, or finds its disk full there: each record of a
transaction, of the partitions it writes to, of the offsets that it commits, and each marker.

A bank: number k of a source is processed by taking k from one account and giving it to another, with the offset of the
source in the same transaction; every fourth is aborted first. In the end each is there once, and the sum is 0.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkad.errors import ErrorCode
from kafkad.log.check import check
from kafkad.wire.records import Record, build_batch, iter_batches, iter_records
from tests.broker import KafkadProcess
from tests.txn.raw import Raw, Tp

DEADLY = Path(__file__).with_name("deadly")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
FROM, TO = ("account", 0), ("account", 1)
GROUP, NAME = "movers", "bank"
SOURCE = ("source", 0)
LONGEST_S = 30
MORE = 3


pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


class Refused(Exception):
    """The broker could not do it: to be begun again."""


class Death(NamedTuple):
    """At a write to a log with this in its path: `before` it, when `half` of it is written, `after` it; or `full`."""

    part: str
    number: int
    when: str

    def __str__(self) -> str:
        return ":".join(map(str, self))


class DeadlyKafkad(KafkadProcess):
    """Dies at a write, if one was chosen."""

    death: Death | None = None

    def command(self) -> list[str]:
        if self.death is None:
            return super().command()
        return ["env", f"PYTHONPATH={DEADLY}", f"DIE_AT={self.death}", *super().command()]


class Bank:
    """A client that moves from one number of the source to the next, and goes on behind the committed offset."""

    def __init__(self, port: int) -> None:
        self._raw = Raw(port)
        self._pid = self._epoch = -1
        self._sequences: dict[Tp, int] = {}

    def close(self) -> None:
        self._raw.close()

    def begin(self) -> int:
        """Take over; the number that comes next. Nothing of the last transaction is left over."""
        raw = self._raw
        raw.coordinator([NAME], 1)
        raw.coordinator([GROUP], 0)
        answer = raw.init(NAME)
        expect_done(answer.error_code)
        self._pid, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        found = raw.settled(NAME)
        assert found.transaction_state == "Empty", found
        for tp in (FROM, TO):
            assert raw.offsets(tp)[1] == raw.offsets(tp, isolation=0)[1], "something is open"
        return self._committed()

    def _committed(self) -> int:
        asked = {"group_id": GROUP, "topics": [{"name": SOURCE[0], "partition_indexes": [SOURCE[1]]}]}
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            found = self._raw.ask("OffsetFetch", 7, {**asked, "require_stable": True}).topics[0].partitions[0]
            if not found.error_code:
                return max(int(found.committed_offset), 0)
            assert found.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), found
            time.sleep(0.01)
        raise AssertionError("no committed offset can be told")

    def move(self, number: int, new: bool) -> None:
        """With the requests of a new client, or of an old one."""
        if number % 4 == 3:
            self._write(number, new)
            self._end(False, new)
        self._write(number, new)
        self._end(True, new)

    def _write(self, number: int, new: bool) -> None:
        raw, pid, epoch = self._raw, self._pid, self._epoch
        if not new:
            expect_done(*raw.add(NAME, pid, epoch, [FROM, TO]).values())
        batches = {tp: self._batch(tp, b"%d %d" % (number, amount)) for tp, amount in ((FROM, -number), (TO, number))}
        sent = raw.produce(NAME, batches, version=12 if new else 9)
        expect_done(*(error for error, _ in sent.values()))
        if not new:
            expect_done(raw.add_offsets(NAME, pid, epoch, GROUP))
        committed = raw.commit_offsets(NAME, pid, epoch, GROUP, {SOURCE: number + 1}, version=5 if new else 3)
        expect_done(*committed.values())

    def _batch(self, tp: Tp, value: bytes) -> bytes:
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + 1
        record = Record(0, int(time.time() * 1000), b"", value)
        producer = {"producer_id": self._pid, "producer_epoch": self._epoch, "base_sequence": sequence}
        return bytes(build_batch([record], **producer, transactional=True))

    def _end(self, commit: bool, new: bool) -> None:
        answer = self._raw.end(NAME, self._pid, self._epoch, commit, version=5 if new else 3)
        expect_done(answer.error_code)
        if new:
            self._pid, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    def read(self, tp: Tp) -> list[tuple[int, int]]:
        """What a reader of committed records finds: number and amount of each."""
        found: list[tuple[int, int]] = []
        offset, end = 0, self._raw.offsets(tp)[1]
        while offset < end:
            answer = self._raw.fetch(tp, offset)
            assert not answer.error_code
            aborted = {(one.producer_id, one.first_offset) for one in answer.aborted_transactions}
            dropped: set[int] = set()
            data = memoryview(answer.records)
            for at, header in iter_batches(data):
                pid, base = header.producer_id, header.base_offset
                dropped |= {one for one, first in aborted if one == pid and first <= base}
                if header.is_control:
                    dropped.discard(pid)
                    aborted = {(one, first) for one, first in aborted if one != pid or first > base}
                elif pid not in dropped and base >= offset:
                    for record in iter_records(data, at, header):
                        number, amount = (record.value or b"").split()
                        found.append((int(number), int(amount)))
                last = base + header.last_offset_delta + 1
            offset = max(last, offset + 1)
        return found


def expect_done(*codes: int) -> None:
    if any(codes):
        raise Refused(*map(ErrorCode, codes))


@contextlib.contextmanager
def bank(port: int) -> Iterator[Bank]:
    client = Bank(port)
    with contextlib.closing(client):
        yield client


RECORDS, MONEY, OFFSETS = "__transaction_state-0", "account-", "__consumer_offsets-0"
DEATHS = [Death(RECORDS, 4, "before"), Death(RECORDS, 5, "half"), Death(MONEY, 3, "before"), Death(OFFSETS, 2, "half")]
FULL = [Death(RECORDS, number, "full") for number in (1, 3, 5)] + [Death(MONEY, 4, "full"), Death(OFFSETS, 2, "full")]


def any_death(chance: random.Random) -> Death:
    part, most = chance.choice([(RECORDS, 14), (MONEY, 12), (OFFSETS, 6)])
    return Death(part, chance.randint(1, most), chance.choice(["before", "half", "after", "full"]))


def test_each_is_moved_once(tmp_path: Path) -> None:
    deaths(tmp_path, DEATHS)


def test_each_is_moved_once_on_full_disks(tmp_path: Path) -> None:
    deaths(tmp_path, FULL)


@pytest.mark.long
def test_two_hundred_deaths(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    deaths(tmp_path, [any_death(chance) for _ in range(200)])


def deaths(directory: Path, chosen: list[Death]) -> None:
    kafkad = DeadlyKafkad(directory, SETTINGS)
    with kafkad:
        raw = Raw(kafkad.port)
        raw.create(SOURCE[0], 1)
        raw.create(FROM[0], 2)
        raw.close()
        with bank(kafkad.port) as client:
            assert client.begin() == 0
            client.move(0, False)
        kafkad.stop()
        done = 1
        for life, kafkad.death in enumerate(chosen):
            kafkad.start(wait=False)
            done = live(kafkad, life % 2 == 1, done)
        kafkad.death = None
        kafkad.start()
        with bank(kafkad.port) as client:
            done = client.begin()
            taken, given = client.read(FROM), client.read(TO)
        assert done >= len(chosen) // 4
        assert taken == [(number, -number) for number in range(done)]
        assert given == [(number, number) for number in range(done)]
        assert "Traceback" not in kafkad.log
    for partition in sorted(kafkad.log_directory().iterdir()):
        if partition.is_dir():
            assert check(str(partition)) == [], partition


def live(kafkad: DeadlyKafkad, new: bool, done: int) -> int:
    """Move until the broker dies, which may be while it starts; or, where it finds its disk full, until it has taken
    some more. How many are known to be done."""
    assert kafkad.death is not None
    dies, enough = kafkad.death.when != "full", done + kafkad.death.number + MORE
    end = time.monotonic() + 4 * LONGEST_S
    while kafkad.alive() and (dies or done < enough):
        assert time.monotonic() < end, f"{kafkad.death}: it did not die, or did not go on"
        with contextlib.suppress(OSError, Refused), bank(kafkad.port) as client:
            begun = client.begin()
            assert begun >= done, f"of {done} that are done only {begun} are left"
            for number in count(begun):
                client.move(number, new)
                done = number + 1
                if not dies and done >= enough:
                    break
        time.sleep(0.01)
    if not dies:
        kafkad.kill()
    assert kafkad.process is not None
    assert kafkad.process.wait() == -9
    return done
