"""Records to one topic: which partition each goes to, as whom they are sent, and what became of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import click

from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.command.changes import confirm_typed
from kctl.command.choosing import Choice
from kctl.command.chosen import chosen_topics
from kctl.command.verb import answer
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.records.batches import NO_LIMIT, NOBODY, Batch, Producer
from kctl.records.formats import Headers, Parsed
from kctl.records.interrupts import Interrupts
from kctl.records.partitioning import Sticky, partitioner
from kctl.records.sending import Delivered, Options, Sender, Undelivered
from kctl.texts.output import Column, Row, keep_writing, note
from kctl.texts.progress import ProgressLine

if TYPE_CHECKING:
    from kctl.reach.session import Topic

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "Its partition.", "number"),
    Column("records", "How many records it took.", "number"),
    Column("first_offset", "The offset of the first of them; - if the broker does not say.", "number"),
    Column("last_offset", "The offset of the last of them; others may have written in between.", "number"),
)


_LATEST = 2**63

C = TypeVar("C", bound=Callable[..., Any])


def _timeout_ms(context: click.Context, parameter: click.Parameter, value: str) -> int:
    from kctl.texts.parsing import LARGEST_INT32, parse_duration_ms

    milliseconds = parse_duration_ms(value, unit="s")
    if milliseconds > LARGEST_INT32:
        raise click.BadParameter(f"{value} is longer than 24 days")
    return milliseconds


def transaction_options(command: C) -> C:
    """The options of commands that may write in a transaction: of `Wishes`, its id and its time-out."""
    timeout = click.option(
        "--transaction-timeout",
        metavar="TIME",
        default="60s",
        callback=_timeout_ms,
        help="How long the transaction may take; transaction.max.timeout.ms of the brokers is the limit.",
        show_default=True,
    )
    named = click.option("--transactional-id", metavar="ID", help="Write all records, or none, in one transaction.")
    return named(timeout(command))


class Wishes(NamedTuple):
    """The options of delivery. A record's own `key`, `headers`, `partition` and `timestamp` come first."""

    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    keep_partition: bool = True
    partitioner: str = "sticky"
    codec: int = 0
    acks: int = -1
    idempotent: bool | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    batch_bytes: int = 512 * 1024
    linger: float = 0.005


class _Taken:
    __slots__ = ("first", "last", "records")

    def __init__(self) -> None:
        self.records, self.first, self.last = 0, -1, -1


def confirm_protected(session: Session, what: str) -> None:
    """Asks before anything is written to a protected cluster, even with -y. Writing then goes on without a reader."""
    keep_writing()
    if session.access.protected:
        label = session.access.label
        confirm_typed(f"{what} will be written on {label}, which is protected.", label)


def one_topic(session: Session, name: str) -> Topic:
    topics, errors = chosen_topics(session, Choice("topic", [name], (), (), takes_patterns=False))
    if errors:
        raise errors[0]
    return topics[name]


class Rehearsal:
    """A sender for --dry-run: takes everything, and sends nothing."""

    def __init__(self, on_delivered: Callable[[Delivered], None]) -> None:
        self.undelivered: list[Undelivered] = []
        self.broken: KctlError | None = None
        self._on_delivered = on_delivered

    def add(self, where: TopicPartition, record: Record, mark: int) -> None:
        batch = Batch(0)
        batch.add(record, mark)
        self._on_delivered(Delivered(where, -1, batch))

    def extend(self, where: TopicPartition, values: Sequence[bytes], timestamp: int, mark: int) -> None:
        batch = Batch(0, timestamp)
        batch.extend(values, timestamp, mark, NO_LIMIT)
        self._on_delivered(Delivered(where, -1, batch))

    def poll(self, seconds: float) -> None:
        """Nothing is on its way."""

    def flush(self) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        """Nothing was opened."""


class Delivery:
    """A context manager: what is still unfinished when it is left is dropped, and a transaction aborted."""

    def __init__(
        self, session: Session, topic: str, wishes: Wishes, interrupts: Interrupts, unit: str = "line"
    ) -> None:
        """`unit` is what records are counted in where they come from."""
        self._unit = unit
        self.committed = True
        self._interrupts = interrupts
        self._session = session
        self._wishes = wishes
        self._topic = topic
        self._finished = False
        self._progress = ProgressLine(session.settings)
        self._taken: dict[TopicPartition, _Taken] = {}
        partitions = one_topic(session, topic).partitions
        self._count = len(partitions)
        self._where = [TopicPartition(topic, index) for index in range(self._count)]
        if wishes.partition is not None:
            self._checked(wishes.partition)
        usable = [part.partition_index for part in partitions if part.leader_id >= 0]
        from random import Random  # with hashlib, which only who sends something pays for

        self._choose = partitioner(wishes.partitioner, self._count, sorted(usable), wishes.batch_bytes, Random())
        self._transaction: Any = None
        self._sender = self._open()

    def _open(self) -> Sender | Rehearsal:
        wishes = self._wishes
        if self._session.settings.dry_run:
            return Rehearsal(self._delivered)
        confirm_protected(self._session, f"Topic {self._topic}")
        producer = NOBODY
        if wishes.transactional_id:
            from kctl.records.producer_transaction import Transaction

            self._transaction = Transaction(
                self._session, wishes.transactional_id, timeout_ms=wishes.transaction_timeout_ms
            )
            producer = self._transaction.begin()
        elif wishes.acks == -1 and wishes.idempotent is not False:
            producer = self._idempotent()
        return Sender(
            self._session,
            Options(wishes.acks, wishes.codec, None, wishes.batch_bytes, wishes.linger),
            producer,
            transactional_id=wishes.transactional_id,
            on_delivered=self._delivered,
            before_send=self._transaction.add if self._transaction else lambda _: None,
        )

    def _idempotent(self) -> Producer:
        from kctl.records.producer_transaction import idempotent_producer

        try:
            return idempotent_producer(self._session)
        except KctlError as error:
            if self._wishes.idempotent or error.exit_code is Exit.UNREACHABLE:
                raise
            return NOBODY  # nobody asked for it, and this broker or user cannot have it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.clear()
        self._sender.close()
        if self._transaction and not self._finished:
            try:
                self._transaction.end(commit=False)
            except KctlError:
                if error is None:
                    raise  # else what went wrong first is what there is to tell

    # --- sending

    @property
    def takes_values(self) -> bool:
        """True if records have only values, and partitions that do not depend on them, as `send_values` needs."""
        wishes = self._wishes
        stays = wishes.partition is not None or isinstance(self._choose, Sticky)
        return stays and wishes.key is None and not wishes.headers and wishes.timestamp is None

    def send(self, parsed: Parsed, line: int) -> None:
        """ValueError when it names a partition or a time that cannot be."""
        wishes = self._wishes
        key, value, headers, timestamp, partition, _ = parsed
        if key is None:
            key = wishes.key
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000 if wishes.timestamp is None else wishes.timestamp
        if not -1 <= timestamp < _LATEST:
            raise ValueError(f"has the time {timestamp}, which is none")
        if partition is not None and wishes.keep_partition:
            if not 0 <= partition < self._count:
                raise ValueError(f"names partition {partition}; {self._topic} has 0 to {self._count - 1}")
        elif wishes.partition is not None:
            partition = wishes.partition
        else:
            partition = self._choose(key, value)
        record = tuple.__new__(Record, (0, timestamp, key, value, headers + wishes.headers))
        self._sender.add(self._where[partition], record, line)

    def send_values(self, values: Sequence[bytes], line: int) -> None:
        """Sends records that are only values, from `line` on, as `send` does one; only if it `takes_values`."""
        partition, count = self._wishes.partition or 0, len(values)
        while values:
            if self._wishes.partition is None and isinstance(self._choose, Sticky):
                partition, count = self._choose.of_next(values)
            timestamp = time.time_ns() // 1_000_000
            self._sender.extend(self._where[partition], values[:count], timestamp, line)
            values = values[count:]
            line += count

    def poll(self) -> None:
        self._sender.poll(0)
        self._progress.show(self._so_far, self._records)

    def flush(self) -> None:
        """Returns when nothing is on its way any more."""
        self._sender.flush()

    @property
    def over(self) -> bool:
        """True if it is useless to go on, or the user has interrupted."""
        return self._interrupts.asked or self._sender.broken is not None

    def finish(self, *, commit: bool = True) -> None:
        """Delivers what is waiting; of a transaction all of it, or nothing."""
        if self._finished:
            return
        self._sender.flush()
        self._finished = True
        if self._wishes.transactional_id:
            self.committed = commit and not self._sender.undelivered and not self._interrupts.asked
        if self._transaction:
            self._transaction.end(commit=self.committed)

    def _checked(self, partition: int) -> None:
        if partition >= self._count:
            what = f"topic {self._topic} has no partition {partition}, only 0 to {self._count - 1}"
            raise KctlError(what, exit_code=Exit.NOT_FOUND)

    # --- telling

    def _delivered(self, delivered: Delivered) -> None:
        taken = self._taken.setdefault(delivered.where, _Taken())
        count = delivered.batch.count
        taken.records += count
        if delivered.first_offset >= 0:
            taken.first = delivered.first_offset if taken.first < 0 else taken.first
            taken.last = delivered.first_offset + count - 1
        self._progress.show(self._so_far, self._records)

    @property
    def _records(self) -> int:
        return sum(taken.records for taken in self._taken.values())

    def _so_far(self, count: int) -> str:
        return f"{count:,} records {'would be delivered' if self._session.settings.dry_run else 'delivered'}"

    def told(self) -> str:
        count = self._records
        would = "would have been" if self._session.settings.dry_run else ""
        if not self.committed:
            return f"nothing {would or 'was'} sent: the transaction {would or 'was'} aborted"
        return f"{count:,} record{'' if count == 1 else 's'} {would or ('was' if count == 1 else 'were')} delivered"

    def report(self, errors: Sequence[KctlError]) -> int:
        """Finishes, prints where the records are, and gives the exit code."""
        self.finish()
        self._progress.clear()
        told = [*errors, *self._losses()]
        dry_run = self._session.settings.dry_run
        if not dry_run:
            self._session.settings.changed = self.told()
        code = answer(self._session, COLUMNS, self._rows() if self.committed else [], told, dry_run=dry_run)
        if dry_run:
            note(self._session.settings, "dry run: nothing was sent")
        if self._interrupts.asked:
            print(f"interrupted: {self.told()}", file=sys.stderr)
            return Exit.INTERRUPTED
        return Exit.FAILED if told else code

    def _rows(self) -> list[Row]:
        return [
            {
                "topic": where.topic,
                "partition": where.partition,
                "records": taken.records,
                "first_offset": None if taken.first < 0 else taken.first,
                "last_offset": None if taken.last < 0 else taken.last,
            }
            for where, taken in sorted(self._taken.items())
        ]

    def _losses(self) -> list[KctlError]:
        """One error for each reason and partition, with the lines that it concerns."""
        lines: dict[tuple[str, str, str], list[int]] = {}
        errors: dict[tuple[str, str, str], KctlError] = {}
        for lost in self._sender.undelivered:
            at = (str(lost.where), lost.error.what, lost.error.code)
            lines.setdefault(at, []).extend(lost.marks)
            errors[at] = self._transaction.explained(lost.error) if self._transaction else lost.error
        return [
            KctlError(
                f"{len(lines[at]):,} not delivered ({self._told_marks(sorted(lines[at]))}): {error.what}",
                exit_code=error.exit_code,
                code=error.code,
                hints=(*error.hints, self.told()),
            )
            for at, error in errors.items()
        ]

    def _told_marks(self, numbers: Sequence[int]) -> str:
        if len(numbers) == 1:
            return f"{self._unit} {numbers[0]}"
        together = numbers[-1] - numbers[0] == len(numbers) - 1
        return f"{self._unit}s {numbers[0]} {'to' if together else '…'} {numbers[-1]}"
