"""`kctl perf latency`."""

from __future__ import annotations

import time
from typing import Any

import click

from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.records.bounds import FOR_EVER, Span
from kctl.records.delivery import one_topic
from kctl.records.interrupts import Interrupts
from kctl.records.offset_ranges import extents
from kctl.records.perf.measuring import LATENCY_COLUMNS, Latencies, latency_text
from kctl.records.perf.options import replication, what_to_send
from kctl.records.perf.stage import Payloads, exit_code, show, stage
from kctl.records.reading import Reader
from kctl.records.sending import Options, Sender
from kctl.texts.output import Column
from kctl.texts.parsing import parse_duration_ms, parse_size
from kctl.texts.progress import ProgressLine

COLUMNS = (
    Column("topic", "The topic."),
    Column("records", "Records, without those of the warm-up.", "number"),
    *LATENCY_COLUMNS,
)
_POLL_SECONDS = 0.1


@click.command("latency", cls=KctlCommand, columns=COLUMNS)
@what_to_send
@click.option("--record-size", metavar="SIZE", default="100", show_default=True, help="Size of a value.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Records per second.  [default: one after the other]",
)
@click.option(
    "--warm-up",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="Ignore the first N records.",
)
@replication
@click.option(
    "--acks",
    type=click.Choice(("all", "1")),
    default="all",
    show_default=True,
    help="Replicas that must have written a record.",
)
@pass_session
def perf_latency(session: Session, /, **options: Any) -> int:
    """Measure end-to-end latency from producer to consumer.

    Sends single records, each after the previous one has arrived, and measures the time until a waiting consumer has
    received it.

    Example: kctl perf latency --records 1000
    """
    errors: list[KctlError] = []
    with Interrupts() as interrupts, stage(session, options["topic"], 1, options["replication"]) as topic:
        trip = RoundTrip(session, TopicPartition(topic, 0), parse_size(options["record_size"]), options["acks"])
        latencies, progress = Latencies(), ProgressLine(session.settings)
        begin = time.monotonic()
        seconds = _seconds(options)
        sent = 0
        try:
            while not interrupts.asked and time.monotonic() - begin < seconds:
                if options["records"] and len(latencies) >= options["records"]:
                    break
                if options["rate"]:
                    time.sleep(max(begin + sent / options["rate"] - time.monotonic(), 0))
                took = trip.once()
                sent += 1
                if sent > options["warm_up"]:
                    latencies.extend([took])
                progress.show("{:,} records, the last in {:.2f} ms".format, sent, took / 1000)
        except KctlError as error:
            errors.append(error)
        finally:
            progress.clear()
            trip.close()
        summary = latencies.summary()
        row = {"topic": topic, "records": len(latencies), **summary}
        text = f"{len(latencies):,} records, {latency_text(summary)}"
        code = show(session, COLUMNS, row, text, errors, latencies)
    return exit_code(interrupts, code)


def _seconds(options: dict[str, Any]) -> float:
    if options["duration"]:
        return parse_duration_ms(options["duration"]) / 1000
    return float("inf") if options["records"] else 10.0


class RoundTrip:
    """One record there and back, `once` more and more."""

    def __init__(self, session: Session, where: TopicPartition, size: int, acks: str) -> None:
        one_topic(session, where.topic)
        known, failed = extents(session, [where], committed=False)
        if failed:
            raise failed[where]
        self._where = where
        self._payloads = Payloads(size)
        self._timeout = session.settings.timeout
        self._sender = Sender(session, Options(acks=-1 if acks == "all" else 1, linger=0))
        self._reader = Reader(session, {where: Span(known[where].end, FOR_EVER)})
        self._reader.poll(0)  # its fetch waits at the broker before there is anything to get

    def once(self) -> int:
        """Microseconds until what was sent is there."""
        value = self._payloads.next()
        begin = time.monotonic()
        self._sender.add(self._where, Record(0, time.time_ns() // 1_000_000, None, value, ()))
        self._sender.poll(0)
        while not self._arrived(value):
            self._sender.poll(0)
            if error := self._sender.broken or self._reader.failed.get(self._where):
                raise error
            if time.monotonic() - begin > self._timeout:
                raise KctlError("a record did not arrive in time", exit_code=Exit.UNREACHABLE)
        took = time.monotonic() - begin
        self._sender.flush()
        return int(took * 1e6)

    def _arrived(self, value: bytes) -> bool:
        values = [record.value for fetched in self._reader.poll(_POLL_SECONDS) for record in fetched.records()]
        return value in values

    def close(self) -> None:
        self._sender.close()
        self._reader.close()
