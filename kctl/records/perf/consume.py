"""`kctl perf consume`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.records.bounds import FIRST, LAST
from kctl.records.delivery import one_topic
from kctl.records.interrupts import Interrupts
from kctl.records.offset_ranges import Range, spans
from kctl.records.perf.measuring import RATE_COLUMNS, Rate
from kctl.records.perf.options import partitions, replication
from kctl.records.perf.stage import Payloads, exit_code, show, stage
from kctl.records.reading import Reader
from kctl.records.sending import Options, Sender
from kctl.texts.parsing import parse_duration_ms, parse_size
from kctl.texts.progress import ProgressLine

_POLL_SECONDS = 0.5


@click.command("consume", cls=KctlCommand, columns=RATE_COLUMNS)
@click.option(
    "--topic", metavar="NAME", shell_complete=topic_names, help="Read this topic, from its beginning to its end."
)
@click.option(
    "-n",
    "--records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N records; with a new topic, the number to write first.  [default: 200000]",
)
@click.option("--duration", metavar="TIME", help="Stop after this time.")
@click.option(
    "--record-size", metavar="SIZE", default="1KB", show_default=True, help="Size of the values in the new topic."
)
@partitions
@replication
@click.option("--batches", is_flag=True, help="Only count and verify batches, to measure the broker rather than kctl.")
@pass_session
def perf_consume(session: Session, /, **options: Any) -> int:
    """Measure consumer throughput.

    Every record is decoded, and the checksums of batches are verified. Without --topic a new topic is filled first, and
    deleted at the end.

    Example: kctl perf consume --topic orders
    """
    with (
        Interrupts() as interrupts,
        stage(session, options["topic"], options["partitions"], options["replication"]) as topic,
    ):
        if not options["topic"]:
            options["records"] = options["records"] or 200_000
            _fill(session, topic, options["records"], parse_size(options["record_size"]), lambda: interrupts.asked)
        rate, errors = _read(session, topic, options, lambda: interrupts.asked)
        code = show(session, RATE_COLUMNS, {"topic": topic, **rate.fields()}, rate.told("read"), errors)
    return exit_code(interrupts, code)


def _fill(session: Session, topic: str, records: int, size: int, asked: Callable[[], bool]) -> None:
    where = [TopicPartition(topic, part.partition_index) for part in one_topic(session, topic).partitions]
    sender, payloads, progress = Sender(session, Options()), Payloads(size), ProgressLine(session.settings)
    now_ms = time.time_ns() // 1_000_000
    try:
        for number in range(records):
            sender.add(where[number % len(where)], Record(0, now_ms, None, payloads.next(), ()))
            if not number % 1000:
                progress.show("filling the topic: {:,} of {:,}".format, number, records)
                if asked() or sender.broken:
                    break
        sender.flush()
        if sender.undelivered:
            raise sender.undelivered[0].error
    finally:
        progress.clear()
        sender.close()


def _read(
    session: Session, topic: str, options: dict[str, Any], asked: Callable[[], bool]
) -> tuple[Rate, list[KctlError]]:
    where = [TopicPartition(topic, part.partition_index) for part in one_topic(session, topic).partitions]
    found, failed = spans(session, where, Range(FIRST, LAST, follow=False, committed=False))
    most = options["records"]
    end = parse_duration_ms(options["duration"]) / 1000 if options["duration"] else None
    reader, progress = Reader(session, found), ProgressLine(session.settings)
    begin = last = time.monotonic()
    records = size = 0
    try:
        while not (reader.done or asked() or (most and records >= most) or (end and last - begin >= end)):
            for fetched in reader.poll(_POLL_SECONDS):
                if options["batches"]:
                    records += fetched.check()
                else:
                    records += sum(1 for _ in fetched.records())
                size += fetched.size
            last = time.monotonic()
            progress.show(Rate.told, Rate(records, size, last - begin), "read")
    finally:
        progress.clear()
        reader.close()
    return Rate(records, size, last - begin), [*(failed | reader.failed).values()]
