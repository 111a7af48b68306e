"""Finds records whose timestamps Spark cannot read: it counts microseconds, of which 64 bits hold fewer years."""

from __future__ import annotations

from typing import NamedTuple

from kafkad.names import TopicPartition
from kafkad_etl.cluster.starts import Positions
from kafkad_etl.errors import EtlError, EtlExit
from kctl.errors import KctlError
from kctl.reach.offsets import MAX_TIMESTAMP, offsets_at
from kctl.reach.session import Session
from kctl.texts.spelling import command

LAST_MS = (2**63 - 1) // 1000
"""The last time that Spark's source can read, in the year 294247."""


class BeyondSpark(NamedTuple):
    """A record whose timestamp ends each batch that has it. The job has read the partition to `done`."""

    where: TopicPartition
    done: int
    offset: int
    timestamp: int

    def __str__(self) -> str:
        return (
            f"{self.where} at offset {self.offset}: the record's timestamp, {self.timestamp}, is beyond {LAST_MS}, the "
            "last that Spark can read"
        )


def beyond_spark(session: Session, done: Positions) -> list[BeyondSpark]:
    """The first such record of each partition that is not read yet, as far as brokers find it by its time."""
    found: dict[TopicPartition, BeyondSpark] = {}
    for time in (MAX_TIMESTAMP, LAST_MS + 1):  # the latest one, unless the first one is still to be read
        for where, at in offsets_at(session, dict.fromkeys(done, time)).items():
            if not isinstance(at, KctlError) and at.timestamp > LAST_MS and at.offset >= done[where]:
                found[where] = BeyondSpark(where, done[where], at.offset, at.timestamp)
    return [record for _, record in sorted(found.items())]


def of_records(found: list[BeyondSpark], *, keeps_progress: bool) -> EtlError:
    """The error, with the way past the first of these records."""
    what = "\n  ".join(map(str, found))
    if not keeps_progress:
        around = f"to offset {found[0].offset}, and from {found[0].offset + 1}"
        return EtlError(what, EtlExit.DATA, hints=(f"source.start and source.end read around it: {around}",))
    topic, partition = found[0].where
    begin, end = found[0].done, found[0].offset
    only = f"partitions: {{{topic}: [{partition}]}}"
    span = f"start: {{{topic}: {{{partition}: {begin}}}}}, end: {{{topic}: {{{partition}: {end}}}}}"
    truncate = command("topics truncate", topic, options=f"--partitions {partition} --before {end + 1}")
    hints = [f"deleting it: kctl {truncate}"]
    if begin < end:
        hints.insert(0, f"first, what is before it: kctl etl run JOB --mode batch --set 'source={{{only}, {span}}}'")
    hints.append("after that, --accept-data-loss continues with what is left, for one run")
    return EtlError(what, EtlExit.DATA, hints=hints)
