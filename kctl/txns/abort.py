"""`kctl txns abort`."""

from __future__ import annotations

import click

from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError, failure
from kctl.reach.offsets import LATEST, OffsetAt, offsets_at
from kctl.reach.session import Session
from kctl.texts.output import Column
from kctl.texts.spelling import command
from kctl.txns.asking import OPEN, Producer, changed_since, described, listed, partitions_named, producers_of

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The partition.", "number", "PART"),
    Column("producer_id", "Whose transaction is ended.", "number"),
    Column("producer_epoch", "Which of the producers with that id.", "number", "EPOCH"),
    Column("coordinator_epoch", "That the end is written with.", "number", wide=True),
    Column("start_offset", "Where it begins.", "number"),
    Column("end_offset", "Where the partition ends now.", "number"),
    Column("hidden_at_most", "Records between the two: those of this producer become invisible.", "number"),
)


@click.command("abort", cls=KctlCommand, columns=COLUMNS)
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.option(
    "--start-offset", type=int, metavar="N", help="Start offset of the transaction, as kctl txns hanging prints it."
)
@click.option("--producer-id", type=int, metavar="ID", help="Or the producer id of the transaction.")
@click.option("--force", is_flag=True, help="Even if its coordinator still manages it.")
@pass_session
def abort(session: Session, partition: str, start_offset: int | None, producer_id: int | None, force: bool) -> int:
    """Abort a hanging transaction on a partition.

    Its records there stay invisible to read_committed consumers, which can then continue past them.

    Example: kctl txns abort payments:1 --start-offset 88121
    """
    where = _one(session, partition)
    producer = _producer(session, where, start_offset, producer_id)
    if not force:
        _check_hangs(session, producer)
    end = offsets_at(session, {where: LATEST})[where]
    change = Change(session, COLUMNS, [_row(producer, end)])
    if not change.confirmed("Abort this transaction?", type_this=str(where)):
        return Exit.DONE
    with change.preparing():
        if not _is_open(session, producer):
            raise changed_since("the transaction")
    _write_marker(session, producer)

    def is_over() -> bool:
        now = producers_of(session, [where])[where]
        return isinstance(now, list) and all(p.start_offset < 0 for p in now if p.producer_id == producer.producer_id)

    return change.done(verified="the transaction is over", seen=is_over)


def _one(session: Session, text: str) -> TopicPartition:
    found, errors = partitions_named(session, [text])
    if errors:
        raise errors[0]
    if len(found) != 1:
        raise KctlError("a transaction is aborted on a single partition", exit_code=Exit.USAGE, hints=(f"{text}:0",))
    return found[0]


def _producer(session: Session, where: TopicPartition, start: int | None, producer_id: int | None) -> Producer:
    if start is None and producer_id is None:
        hints = (f"kctl {command('txns hanging', where.topic)}",)
        raise KctlError("give --start-offset or --producer-id", exit_code=Exit.USAGE, hints=hints)
    there = producers_of(session, [where])[where]
    if isinstance(there, KctlError):
        raise there
    for one in there:
        if one.start_offset >= 0 and start in (None, one.start_offset) and producer_id in (None, one.producer_id):
            return one
    which = f"that begins at {start}" if producer_id is None else f"of producer {producer_id}"
    look = command("txns producers", f"{where.topic}:{where.partition}", options="--open")
    what = f"{where} has no open transaction {which}"
    raise KctlError(what, exit_code=Exit.NOT_FOUND, hints=(f"kctl {look}",))


def _is_open(session: Session, producer: Producer) -> bool:
    """True as long as it is the same transaction: the marker says only whose it is, and ends a later one as well."""
    there = producers_of(session, [producer.where])[producer.where]
    if isinstance(there, KctlError):
        raise there
    return any(
        (one.producer_id, one.producer_epoch, one.start_offset)
        == (producer.producer_id, producer.producer_epoch, producer.start_offset)
        for one in there
    )


def _check_hangs(session: Session, producer: Producer) -> None:
    known, silent = listed(session, producer_ids=[producer.producer_id])
    if silent:
        raise silent[0]
    names = [one.transactional_id for one in known]
    for name, one in described(session, names).items():
        if isinstance(one, KctlError) or (one.state in OPEN and producer.where in one.partitions):
            hints = ("its producer or the time-out ends it", "--force ends it here only, and tears it apart")
            what = f'the coordinator of "{name}" still manages this transaction'
            raise KctlError(what, exit_code=Exit.REFUSED, hints=hints)


def _row(producer: Producer, end: OffsetAt | KctlError) -> dict[str, object]:
    last = None if isinstance(end, KctlError) else end.offset
    return {
        "topic": producer.where.topic,
        "partition": producer.where.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": max(producer.coordinator_epoch, 0),
        "start_offset": producer.start_offset,
        "end_offset": last,
        "hidden_at_most": None if last is None else last - producer.start_offset,
    }


def _write_marker(session: Session, producer: Producer) -> None:
    from kafkad.wire.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    topic, partition = producer.where
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    leader = session.leaders([producer.where])[producer.where]
    if isinstance(leader, KctlError):
        raise leader
    response = session.call(WriteTxnMarkersRequest(markers=[marker]), leader)
    for result in (part for one in response.markers for of in one.topics for part in of.partitions):
        if result.error_code:
            raise failure(result.error_code, f"the transaction on {producer.where} was not aborted")
