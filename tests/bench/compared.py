"""Figures of kafkad beside those of a real Kafka 3.9 that gets the same work on the same machine, one line each.

A measurement is a function of a broker that yields values by name; what they have to be stands in its promises.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.measured import LoadGenerator, prepare
from tests.broker import KafkadProcess
from tests.oracle import kafka as oracle

KAFKAD, KAFKA = "kafkad", "Kafka 3.9"
ONE_BROKER = {"offsets.topic.replication.factor": "1"}

Values = Iterator[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """`ratio` is how many times better than Kafka kafkad has to be."""

    name: str
    unit: str
    limit: float | None = None
    at_least: bool = False
    """True if more is better."""
    ratio: float | None = None

    def line(self, mine: float | None, kafkas: float | None) -> tuple[str, bool]:
        """The line to print, and True if the promise is kept."""
        ratio = None
        if mine and kafkas:
            ratio = mine / kafkas if self.at_least else kafkas / mine
        kept = mine is None or self.limit is None or (mine >= self.limit if self.at_least else mine <= self.limit)
        kept = kept and (ratio is None or self.ratio is None or ratio >= self.ratio)
        sign = "≥" if self.at_least else "≤"
        limit = "" if self.limit is None else f"{sign} {self.limit:g}"
        wanted = "" if self.ratio is None else f"≥ x{self.ratio:g}"
        cells = [
            f"{self.name:54}",
            _cell(mine, "{:12.2f}"),
            _cell(kafkas, "{:12.2f}"),
            f"{self.unit:6}",
            f"{limit:>9}",
            _cell(ratio, "x{:<7.2f}"),
            f"{wanted:7}",
            "" if kept else "MISSED",
        ]
        return " ".join(cells).rstrip(), kept


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _cell(value: float | None, form: str) -> str:
    return " " * len(form.format(0)) if value is None else form.format(value)


@dataclass(slots=True)
class Bench:
    """`size` is what share of the full work is done."""

    directory: Path
    generator: LoadGenerator
    size: float


@dataclass(slots=True, kw_only=True)
class Side:
    """A broker that is running."""

    name: str
    bench: Bench
    broker: KafkadProcess | oracle.Kafka

    @property
    def port(self) -> int:
        return self.broker.port if isinstance(self.broker, KafkadProcess) else self.broker.ports[0]

    @property
    def pid(self) -> int:
        return self.broker.pid if isinstance(self.broker, KafkadProcess) else self.broker.pids[0]

    def log_directory(self) -> Path:
        return self.broker.log_directory()

    def crash(self, meanwhile: Callable[[], None]) -> None:
        """SIGKILL, then `meanwhile`, then a start; returns when connections are accepted."""
        if isinstance(self.broker, oracle.Kafka):
            self.broker.restart(kill=True, meanwhile=meanwhile)
            return
        self.broker.kill()
        meanwhile()
        self.broker.start(wait=False).wait_ready(120)


@dataclass(frozen=True, slots=True)
class Measurement:
    run: Callable[[Side], Values]
    promises: Sequence[Promise]
    settings: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str, bench: Bench) -> dict[str, float]:
        settings = {**ONE_BROKER, **self.settings}
        with contextlib.ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=bench.directory)))
            broker: KafkadProcess | oracle.Kafka = (
                KafkadProcess(scratch, settings)
                if name == KAFKAD
                else oracle.Kafka("3.9", settings=settings, data=scratch / "data")
            )
            stack.enter_context(broker)
            return dict(self.run(Side(name=name, bench=bench, broker=broker)))


def main(description: str | None, measurements: Sequence[Measurement]) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only measurements whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: whether it runs, not how fast")
    parser.add_argument("--without", choices=["kafka", "kafkad"], help="leave one of the two out")
    options = parser.parse_args()
    prepare()
    sides = [name for name in (KAFKA, KAFKAD) if options.without is None or options.without != name.split()[0].lower()]
    missed = 0
    print(f"{'':54} {KAFKAD:>12} {KAFKA:>12} {'':6} {'limit':>9} ahead by", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        bench = Bench(Path(scratch), LoadGenerator(Path(scratch)), 0.1 if options.quick else 1)
        for measurement in measurements:
            if options.only not in measurement.run.__name__:
                continue
            values: dict[str, dict[str, float]] = {}
            for name in sides:
                os.sync()
                try:
                    values[name] = measurement.of(name, bench)
                except Exception as error:  # the other figures are worth having all the same
                    print(f"{measurement.run.__name__} on {name} FAILED: {_first_line(error)}", flush=True)
                    missed += 1
            for promise in measurement.promises:
                line, kept = promise.line(*(values.get(name, {}).get(promise.name) for name in (KAFKAD, KAFKA)))
                print(line, flush=True)
                missed += not kept
    sys.exit(1 if missed else 0)
