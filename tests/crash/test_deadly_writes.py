"""The broker is killed at each write of a transaction, or finds its disk full there: each record of its state, of the
partitions that it writes to and of the offsets that it commits, and each marker; and again while it starts after that.

A bank: number k of a source is processed by taking k from one account and giving it to another, with the offset of the
source in the same transaction. In the end each is there once, and the sum is 0.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import pytest

from kafkad.txn.records import decode
from kafkad.txn.transaction import Transaction
from kafkad.wire.records import BatchHeader, RecordsError, iter_batches, iter_records
from tests.crash.deaths import DeadlyKafkad, Death, When
from tests.log.consistency import check
from tests.txn.producer import RawProducer, Refused, expect_done
from tests.txn.raw import Raw, Tp

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
FROM, TO = ("account", 0), ("account", 1)
GROUP, NAME = "movers", "bank"
SOURCE = ("source", 0)
LONGEST_S = 60
TIMEOUT_MS, SHORT_MS = 60_000, 150

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

Ending = Literal["commit", "abort", "time out", "fence"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)

STATE, OFFSETS, TAKEN, GIVEN = "__transaction_state-0", "__consumer_offsets-0", "account-0", "account-1"
WRITES = [
    (STATE, 1, "Ongoing"),
    (TAKEN, 1, ""),
    (GIVEN, 1, ""),
    (STATE, 2, "Ongoing"),
    (OFFSETS, 1, ""),
    (STATE, 3, "Prepare"),
    (OFFSETS, 2, "marker"),
    (TAKEN, 2, "marker"),
    (GIVEN, 2, "marker"),
    (STATE, 4, "Complete"),
]
"""All of a transaction, in their order: the log, the number of the write to it, and what it is."""
DECISION = WRITES.index((STATE, 3, "Prepare"))
AGAIN = [(OFFSETS, 1), (TAKEN, 1), (GIVEN, 1), (STATE, 1)]
"""What a broker writes that starts behind a decision: all markers, though some may be there already, and the end."""


class Case(NamedTuple):
    new: bool
    """The requests of a new client, or of an old one."""
    ending: Ending
    place: int
    """Among WRITES."""
    when: When
    again: Death | None = None
    """While the broker starts after that."""

    @property
    def death(self) -> Death:
        log, number, _ = WRITES[self.place]
        return Death(f"/{log}/", number, self.when)

    @property
    def decided(self) -> bool:
        """At the end of the broker's life."""
        return self.place > DECISION or (self.place == DECISION and self.when in ("after", "full"))


WAYS = list(product((False, True), ENDINGS))
ONCE = [
    Case(*way, place, when)
    for way, place, when in product(WAYS, range(len(WRITES)), ("before", "half", "after"))
]  # fmt: skip
TWICE = [
    Case(*way, DECISION, "after", Death(f"/{log}/", number, when))
    for way, (log, number), when in product(WAYS, AGAIN, ("before", "half", "after"))
]
FULL = [Case(*way, place, "full") for way, place in product(WAYS, range(len(WRITES)))]


class Bank:
    """A client that moves from one number of the source to the next, and goes on behind the committed offset."""

    def __init__(self, port: int, new: bool) -> None:
        self.raw = Raw(port)
        self._producer = RawProducer(self.raw, NAME, new=new)

    def begin(self, timeout_ms: int = TIMEOUT_MS) -> int:
        """Take over; the number that comes next. Nothing of the last transaction is left over."""
        raw = self.raw
        raw.coordinator([NAME], 1)
        raw.coordinator([GROUP], 0)
        self._producer.begin(timeout_ms)
        found = raw.settled(NAME)
        assert found.transaction_state == "Empty", found
        for tp in (FROM, TO):
            assert raw.offsets(tp)[1] == raw.offsets(tp, isolation=0)[1], "something is open"
        return max(raw.committed_offset(GROUP, SOURCE), 0)

    def move(self, number: int, ending: Ending) -> None:
        """All of a transaction."""
        values = {FROM: b"%d %d" % (number, -number), TO: b"%d %d" % (number, number)}
        self._producer.write(values, GROUP, {SOURCE: number + 1})
        if ending == "fence":
            expect_done(self.raw.init(NAME, TIMEOUT_MS).error_code)
        elif ending == "time out":
            end = time.monotonic() + LONGEST_S
            while self.raw.describe(NAME).transaction_state != "CompleteAbort":
                assert time.monotonic() < end
                time.sleep(0.01)
        else:
            self._producer.end(commit=ending == "commit")

    def read(self, tp: Tp) -> list[tuple[int, int]]:
        """What a reader of committed records finds: number and amount of each."""
        return [(int(number), int(amount)) for number, amount in map(bytes.split, self.raw.committed(tp))]


@contextlib.contextmanager
def bank(port: int, new: bool = False) -> Iterator[Bank]:
    client = Bank(port, new)
    with contextlib.closing(client.raw):
        yield client


def test_each_is_moved_once(tmp_path: Path) -> None:
    go_through(tmp_path, [*ONCE[1::27], *TWICE[::33]])


def test_each_is_moved_once_on_full_disks(tmp_path: Path) -> None:
    go_through(tmp_path, FULL[::7])


@pytest.mark.long
@pytest.mark.parametrize(("new", "ending"), WAYS)
def test_a_death_at_each_write(new: bool, ending: Ending, tmp_path: Path) -> None:
    go_through(tmp_path, [case for case in (*ONCE, *TWICE) if case[:2] == (new, ending)])


@pytest.mark.long
@pytest.mark.parametrize(("new", "ending"), WAYS)
def test_a_full_disk_at_each_write(new: bool, ending: Ending, tmp_path: Path) -> None:
    go_through(tmp_path, [case for case in FULL if case[:2] == (new, ending)])


def go_through(directory: Path, cases: list[Case]) -> None:
    kafkad = DeadlyKafkad(directory, SETTINGS)
    with kafkad:
        raw = Raw(kafkad.port)
        raw.create(SOURCE[0], 1)
        raw.create(FROM[0], 2)
        raw.close()
        with bank(kafkad.port) as client:
            assert client.begin() == 0
            client.move(0, "commit")
        done = 1
        for case in cases:
            done = (live_on if case.when == "full" else die)(kafkad, case, done)
        with bank(kafkad.port) as client:
            assert client.begin() == done
            assert client.read(FROM) == [(number, -number) for number in range(done)]
            assert client.read(TO) == [(number, number) for number in range(done)]
        assert "Traceback" not in kafkad.log
    for partition in sorted(kafkad.log_directory().iterdir()):
        if partition.is_dir():
            assert check(str(partition)) == [], partition


def die(kafkad: DeadlyKafkad, case: Case, number: int) -> int:
    """Number is moved by a broker that dies; how many have been moved when the next one has started."""
    begin_to_move(kafkad, case, number)
    assert kafkad.process is not None
    assert kafkad.process.wait(LONGEST_S) == -9, case
    check_left(kafkad, case)
    kafkad.disarm()
    if case.again is not None:
        kafkad.arm(case.again)
        kafkad.start(wait=False)
        assert kafkad.process.wait(LONGEST_S) == -9, case
        kafkad.disarm()
    kafkad.start()
    moved = case.decided and case.ending == "commit"
    with bank(kafkad.port) as client:
        assert client.begin() == number + moved, case
    return number + moved


def live_on(kafkad: DeadlyKafkad, case: Case, number: int) -> int:
    """Number is moved by a broker that has no room for a while."""
    begin_to_move(kafkad, case, number)
    end = time.monotonic() + LONGEST_S
    while True:
        assert kafkad.alive()
        with contextlib.suppress(Refused), bank(kafkad.port, case.new) as client:
            begun = client.begin()
            break
        assert time.monotonic() < end, f"{case}: it does not go on"
        time.sleep(0.01)
    kafkad.disarm()
    assert begun in ((number, number + 1) if case.ending == "commit" else (number,)), case
    return begun


def begin_to_move(kafkad: DeadlyKafkad, case: Case, number: int) -> None:
    with contextlib.suppress(OSError, Refused), bank(kafkad.port, case.new) as client:
        assert client.begin(SHORT_MS if case.ending == "time out" else TIMEOUT_MS) == number, case
        kafkad.arm(case.death)
        client.move(number, case.ending)
        assert case.when == "full", f"{case}: it is still alive"


def check_left(kafkad: DeadlyKafkad, case: Case) -> None:
    """The broker died where it was to."""
    whole = WRITES[: case.place + (case.when == "after")]
    *_, state = states(kafkad.log_directory() / STATE)
    assert state.startswith(next((what for log, _, what in reversed(whole) if log == STATE), "Empty")), (case, state)
    for log in (OFFSETS, TAKEN, GIVEN):
        *_, last = batches(kafkad.log_directory() / log)
        number = sum(1 for one, _, _ in whole if one == log)
        assert last.is_control == (number != 1), f"{case}: {last} is the last batch in {log}"


def batches(partition: Path) -> Iterator[BatchHeader]:
    [path] = partition.glob("*.log")
    with contextlib.suppress(RecordsError):
        for _, header in iter_batches(memoryview(path.read_bytes())):
            yield header


def states(partition: Path) -> Iterator[str]:
    [path] = partition.glob("*.log")
    data = memoryview(path.read_bytes())
    with contextlib.suppress(RecordsError):
        for at, header in iter_batches(data):
            for record in iter_records(data, at, header):
                found = decode(record.key or b"", record.value)
                assert isinstance(found, Transaction)
                yield found.state.label
