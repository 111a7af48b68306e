"""A scrape of a running kafkad, taken apart."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.clients.asker import Asker
from tests.oracle.kafka import free_port

GROUP, TOPIC = "readers", "orders"
RECORDS, COMMITTED = 6, 2

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)")


class Scrape:
    """`families` are names as queries know them: a summary's sum and count are names of their own."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = [_SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
        self.samples = {f"{m[1]}{m[2] or ''}": float(m[3]) for m in found if m is not None}
        self.families = {m[1] for m in found if m is not None}

    def __getitem__(self, sample: str) -> float:
        return self.samples[sample]

    def of(self, family: str) -> dict[str, float]:
        return {name: value for name, value in self.samples.items() if name.partition("{")[0] == family}


def scrape(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return Scrape(answer.read().decode())


class Metered:
    """A kafkad that has topics, records, a group that is behind, TLS, and a client that asked for what is not there."""

    def __init__(self, kafkad: KafkadProcess, port: int, asker: Asker) -> None:
        self.kafkad = kafkad
        self.port = port
        self.asker = asker

    def scrape(self) -> Scrape:
        return scrape(self.port)


@contextmanager
def metered(directory: Path, **settings: str) -> Iterator[Metered]:
    port = free_port()
    process = KafkadProcess(directory, {"http.listener": f"127.0.0.1:{port}", **settings})
    process.settings["listeners"] += f",SSL://127.0.0.1:{free_port()}"
    process.settings["ssl.keystore.location"] = str(Authority().issue().write(directory / "broker.pem"))
    with process as kafkad:
        asker = Asker(kafkad.port)
        try:
            asker.create(TOPIC)
            _commit(asker)
            fetch(asker, TOPIC)
            fetch(asker, "nowhere")
            yield Metered(kafkad, port, asker)
        finally:
            asker.client.close()


def _commit(asker: Asker) -> None:
    position = {"partition_index": 0, "committed_offset": COMMITTED, "committed_metadata": ""}
    question = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": TOPIC, "partitions": [position]}],
    }
    while asker.ask("FindCoordinator", 1, {"key": GROUP, "key_type": 0}).error_code:
        pass
    while asker.ask("OffsetCommit", 6, question).topics[0].partitions[0].error_code:
        pass


def fetch(asker: Asker, topic: str, *, offset: int = 0, max_wait_ms: int = 0) -> None:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [partition]}]
    question = {"replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
    asker.ask("Fetch", 4, question)
