"""Kafka Streams 3.9 and 4.3 with `exactly_once_v2`: words are counted once, while broker and application are killed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker import KafkadProcess
from tests.oracle.kafka import fetch, missing

JAR = "kafka-streams"
WORD_COUNT = Path(__file__).with_name("WordCount.java")
INPUT, OUTPUT = "lines", "counts"
WORDS = ("all", "streams", "lead", "to", "kafkad")
LINES, ROUNDS, PARTITIONS, S = 200, 5, 2, 60
INTERNAL = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(600)]


class Application:
    """Counts the words of one topic, and writes each count to another."""

    def __init__(self, release: str, bootstrap: str, scratch: Path) -> None:
        self.log = scratch / "streams.log"
        self._jars = _jars(release)
        self._properties = scratch / "streams.properties"
        settings = {
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


def _jars(release: str) -> str:
    return f"streams-{release}"


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_words_are_counted_once(tmp_path: Path, release: str) -> None:
    if reason := missing(_jars(release), JAR):
        pytest.skip(reason)
    wanted: Counter[str] = Counter()
    with KafkadProcess(tmp_path / "kafkad", INTERNAL) as kafkad:
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
        topics = [NewTopic(INPUT, PARTITIONS, 1), NewTopic(OUTPUT, PARTITIONS, 1)]
        for made in admin.create_topics(topics).values():
            made.result(S)
        producer = Producer({"bootstrap.servers": kafkad.bootstrap, "log_level": 0})
        application, counts = Application(release, kafkad.bootstrap, tmp_path), Counts(kafkad.bootstrap)
        try:
            for round_ in range(ROUNDS):
                for number in range(LINES):
                    line = [*WORDS[: 1 + number % len(WORDS)], f"round{round_}"]
                    wanted.update(line)
                    producer.produce(INPUT, " ".join(line).encode(), partition=number % PARTITIONS)
                assert producer.flush(S) == 0
                if round_ == 2:
                    application.kill()
                    application.start()
                elif round_:
                    time.sleep(0.3)  # it is in the middle of them
                    kafkad.kill()
                    kafkad.start()
                counts.wait_for(wanted)
            assert counts.found == {word: list(range(1, count + 1)) for word, count in wanted.items()}
        except AssertionError:
            print(application.log.read_text()[-5000:])
            raise
        finally:
            application.kill()
            counts.close()
