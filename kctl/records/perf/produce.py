"""`kctl perf produce`."""

from __future__ import annotations

import time
from typing import Any

import click

from kafkad.names import TopicPartition
from kafkad.wire.compression import CODEC_NAMES
from kafkad.wire.records import Record
from kctl.command.verb import KctlCommand, pass_session
from kctl.reach.session import Session
from kctl.records.batches import NOBODY
from kctl.records.delivery import one_topic
from kctl.records.interrupts import Interrupts
from kctl.records.perf.measuring import LATENCY_COLUMNS, RATE_COLUMNS, Latencies, Rate, latency_text
from kctl.records.perf.options import partitions, replication, what_to_send
from kctl.records.perf.stage import Payloads, exit_code, show, stage
from kctl.records.sending import Delivered, Options, Sender
from kctl.texts.parsing import parse_duration_ms, parse_size
from kctl.texts.progress import ProgressLine

COLUMNS = (*RATE_COLUMNS, *LATENCY_COLUMNS)
_TICK_SECONDS = 0.005


@click.command("produce", cls=KctlCommand, columns=COLUMNS)
@what_to_send
@click.option("--record-size", metavar="SIZE", default="1KB", show_default=True, help="Size of a value.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Records per second.  [default: as many as possible]",
)
@click.option("--warm-up", metavar="TIME", help="Ignore what is sent in this time.  [default: 1s; 0s with --records]")
@partitions
@replication
@click.option(
    "--compression", type=click.Choice(CODEC_NAMES), default="none", show_default=True, help="Compression of batches."
)
@click.option(
    "--acks",
    type=click.Choice(("all", "1", "0")),
    default="all",
    show_default=True,
    help="Replicas that must have written a record.",
)
@click.option("--batch-size", metavar="SIZE", default="512KB", show_default=True, help="Largest size of a batch.")
@click.option(
    "--linger", metavar="TIME", default="5ms", show_default=True, help="How long a batch waits for more records."
)
@pass_session
def perf_produce(session: Session, /, **options: Any) -> int:
    """Measure producer throughput and latency.

    Latency is the time from when a record is ready (with --rate, from when it is due) until the broker has acknowledged
    it. Unless --topic names one, a new topic is used and deleted at the end.

    Example: kctl perf produce --record-size 1KB --duration 30s --acks all
    """
    with (
        Interrupts() as interrupts,
        stage(session, options["topic"], options["partitions"], options["replication"]) as topic,
    ):
        run = Run(session, topic, options, interrupts)
        run.go()
        code = run.report()
    return exit_code(interrupts, code)


class Run:
    """One measurement: `go` sends, `report` tells."""

    def __init__(self, session: Session, topic: str, options: dict[str, Any], interrupts: Interrupts) -> None:
        self._session = session
        self._topic = topic
        self._interrupts = interrupts
        self._where = [TopicPartition(topic, part.partition_index) for part in one_topic(session, topic).partitions]
        self._size = parse_size(options["record_size"])
        self._rate = options["rate"]
        seconds = parse_duration_ms(options["duration"]) / 1000 if options["duration"] else None
        self._records = options["records"]
        self._seconds = seconds if seconds is not None or self._records else 10.0
        self._warm_up = parse_duration_ms(options["warm_up"] or ("0s" if self._records else "1s")) / 1000
        self._latencies = Latencies()
        self._counted = 0
        self._begin = self._last = 0.0
        self._counted_from: float | None = None
        self._progress = ProgressLine(session.settings)
        self._sender = Sender(
            session,
            Options(
                {"all": -1, "1": 1, "0": 0}[options["acks"]],
                CODEC_NAMES.index(options["compression"]),
                None,
                parse_size(options["batch_size"]),
                parse_duration_ms(options["linger"]) / 1000,
            ),
            NOBODY,
            on_delivered=self._delivered,
        )

    def go(self) -> None:
        try:
            self._begin = time.monotonic()
            if self._rate:
                self._send_at_rate()
            else:
                self._send_all_out()
            self._sender.flush()
        finally:
            self._progress.clear()
            self._sender.close()

    def _goes_on(self, sent: int, now: float) -> bool:
        if self._interrupts.asked or self._sender.broken is not None:
            return False
        if self._records is not None and sent >= self._records:
            return False
        return self._seconds is None or now - self._begin < self._seconds

    def _send_all_out(self) -> None:
        """The partition changes with each batch, as a producer's without keys does."""
        payloads, add, clock, where = Payloads(self._size), self._sender.add, time.monotonic, self._where
        a_turn = max(1, (256 << 10) // max(self._size, 1))
        sent, now = 0, self._begin
        while self._goes_on(sent, now):
            partition = where[(sent // a_turn) % len(where)]
            for _ in range(a_turn if self._records is None else min(a_turn, self._records - sent)):
                now = clock()
                add(partition, Record(0, int(time.time() * 1000), None, payloads.next(), ()), int(now * 1e6))
                sent += 1
            self._sender.poll(0)

    def _send_at_rate(self) -> None:
        payloads, sent, now = Payloads(self._size), 0, self._begin
        while self._goes_on(sent, now):
            due = int((now - self._begin) * self._rate) + 1
            if self._records is not None:
                due = min(due, self._records)
            while sent < due:
                meant = self._begin + sent / self._rate
                record = Record(0, int(time.time() * 1000), None, payloads.next(), ())
                self._sender.add(self._where[sent % len(self._where)], record, int(meant * 1e6))
                sent += 1
            self._sender.poll(min(_TICK_SECONDS, 1 / self._rate))
            now = time.monotonic()

    def _delivered(self, delivered: Delivered) -> None:
        self._last = now = time.monotonic()
        if self._counted_from is None:
            if now - self._begin < self._warm_up:
                return
            self._counted_from = self._begin if not self._warm_up else now
            if self._warm_up:
                return  # the batch that ends the warm-up is still of it
        marks = delivered.batch.marks
        self._counted += len(marks)
        micros = int(now * 1e6)
        self._latencies.extend([max(micros - mark, 0) for mark in marks])
        self._progress.show(Rate.told, self._so_far(), "sent")

    def _so_far(self) -> Rate:
        seconds = 0.0 if self._counted_from is None else self._last - self._counted_from
        return Rate(self._counted, self._counted * self._size, seconds)

    def report(self) -> int:
        rate, summary = self._so_far(), self._latencies.summary()
        errors = [lost.error for lost in self._sender.undelivered[:1]]
        row = {"topic": self._topic, **rate.fields(), **summary}
        text = f"{rate.told('sent')}, {latency_text(summary)}"
        return show(self._session, COLUMNS, row, text, errors, self._latencies)
