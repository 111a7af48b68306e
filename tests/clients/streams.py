"""An application of Kafka Streams with `exactly_once_v2`, which counts words, and what it has counted."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.oracle.kafka import fetch, missing

RELEASES = ("3.9", "4.3")
JAR = "kafka-streams"
WORD_COUNT = Path(__file__).with_name("WordCount.java")
INPUT, OUTPUT = "lines", "counts"
WORDS = ("all", "streams", "lead", "to", "kafkad")
LINES, PARTITIONS, S = 200, 2, 60


class Application:
    """Counts the words of one topic, and writes each count to another."""

    def __init__(self, release: str, bootstrap: str, scratch: Path, settings: Mapping[str, str]) -> None:
        self.log = scratch / "streams.log"
        self._jars = jars(release)
        self._properties = scratch / "streams.properties"
        settings = {
            **settings,
            "application.id": "word-count",
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "earliest",
            "statestore.cache.max.bytes": "0",  # or some counts would not be written
            "processing.guarantee": "exactly_once_v2",
            "state.dir": str(scratch / "state"),
            "num.stream.threads": "2",
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "1000",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.start()

    def start(self) -> None:
        quiet = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = ["java", *quiet, "-cp", f"{fetch(self._jars, JAR)}/*", str(WORD_COUNT), str(self._properties)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Counts:
    """What a reader of committed records has found in the output, by word."""

    def __init__(self, bootstrap: str) -> None:
        self.found: dict[str, list[int]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([OUTPUT])

    def wait_for(self, wanted: Counter[str]) -> None:
        """Until each word has been counted so often."""
        end = time.monotonic() + 2 * S
        while {word: counts[-1] for word, counts in self.found.items()} != wanted:
            assert time.monotonic() < end, f"counted: {self.last()}, wanted: {dict(wanted)}"
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:
                self.found.setdefault((message.key() or b"").decode(), []).append(int(message.value() or b""))

    def last(self) -> dict[str, int]:
        return {word: counts[-1] for word, counts in self.found.items()}

    def close(self) -> None:
        self._consumer.close()


def jars(release: str) -> str:
    return f"streams-{release}"


def lacking(release: str) -> str | None:
    """The reason that an application of this release cannot run here."""
    return missing(jars(release), JAR)


class Counting(NamedTuple):
    """An application that counts what is said."""

    application: Application
    counts: Counts
    wanted: Counter[str]
    producer: Producer

    def say(self, word: str) -> None:
        """Some lines, with this word in each."""
        for number in range(LINES):
            line = [*WORDS[: 1 + number % len(WORDS)], word]
            self.wanted.update(line)
            self.producer.produce(INPUT, " ".join(line).encode(), partition=number % PARTITIONS)
        assert self.producer.flush(S) == 0

    def restart(self) -> None:
        """Kills the application."""
        self.application.kill()
        self.application.start()

    def wait(self) -> None:
        """Until all that was said is counted."""
        self.counts.wait_for(self.wanted)


@contextmanager
def counting(release: str, bootstrap: str, scratch: Path, *, replicas: int = 1) -> Iterator[Counting]:
    """Each word is counted once, and each count there once, when the block ends."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, replicas) for topic in (INPUT, OUTPUT)]).values():
        made.result(S)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True})
    application = Application(release, bootstrap, scratch, {"replication.factor": str(replicas)})
    counts = Counts(bootstrap)
    words = Counting(application, counts, Counter(), producer)
    try:
        yield words
        words.wait()
        assert counts.found == {word: list(range(1, count + 1)) for word, count in words.wanted.items()}
    except AssertionError:
        print(application.log.read_text()[-5000:])
        raise
    finally:
        application.kill()
        counts.close()
