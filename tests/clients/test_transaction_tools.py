"""Kafka's own `kafka-transactions`: what it lists, describes, finds and ends on a broker with transactions open."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.broker import KafkadProcess
from tests.oracle.kafka import missing, tool
from tests.txn.raw import Raw

Row = dict[str, str]

SECONDS = 120
OPEN, DONE, NOBODY = "open-one", "done-one", "of-nobody"
SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "transaction.partition.verification.enable": "false",  # or no transaction could be left hanging
}

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(600)]


class Tool:
    def __init__(self, release: str, bootstrap: str) -> None:
        self._release = release
        self._bootstrap = bootstrap

    def run(self, words: str) -> str:
        command = tool(self._release, "transactions", "--bootstrap-server", self._bootstrap, *words.split())
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def rows(self, words: str) -> list[Row]:
        """Of the table that it prints."""
        heads, *rows = [line.split() for line in self.run(words).splitlines() if line.strip()]
        return [dict(zip(heads, row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def kafkad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    with KafkadProcess(tmp_path_factory.mktemp("kafkad"), SETTINGS) as process:
        yield process


class Left:
    """A topic of two partitions: in 0 one transaction is open and another was committed, in 1 one is hanging."""

    def __init__(self, kafkad: KafkadProcess, topic: str) -> None:
        raw = Raw(kafkad.port)
        raw.create(topic, 2)
        self.open, self.done = f"{topic}-{OPEN}", f"{topic}-{DONE}"
        raw.coordinator([self.open, self.done], 1)
        done = raw.new(self.done)
        assert raw.add(self.done, *done, [(topic, 0)]) == {f"{topic}-0": 0}
        assert raw.produce_one(self.done, *done, 0, (topic, 0))[0] == 0
        assert raw.end(self.done, *done).error_code == 0
        self.producer = raw.new(self.open, timeout=600_000)
        assert raw.add(self.open, *self.producer, [(topic, 0)]) == {f"{topic}-0": 0}
        assert raw.produce_one(self.open, *self.producer, 0, (topic, 0))[0] == 0
        self.hanging = raw.new(None)
        assert raw.produce_one(None, *raw.new(None), 0, (topic, 1), txn=False)[0] == 0
        self.start = raw.produce_one(f"{topic}-{NOBODY}", *self.hanging, 0, (topic, 1))[1]
        assert self.start == 1
        self.topic = topic
        self._raw = raw

    def readable(self, partition: int) -> tuple[int, int]:
        """The offset that readers of committed records reach, and the end."""
        committed, end = (self._raw.offsets((self.topic, partition), isolation)[1] for isolation in (1, 0))
        return committed, end

    def commit(self) -> int:
        code: int = self._raw.end(self.open, *self.producer).error_code
        return code

    def close(self) -> None:
        self._raw.close()


@pytest.fixture(params=["3.9", "4.3"])
def session(kafkad: KafkadProcess, request: pytest.FixtureRequest) -> Iterator[tuple[Tool, Left]]:
    if reason := missing(request.param):
        pytest.skip(reason)
    left = Left(kafkad, f"{request.node.originalname.replace('_', '-')}-{request.param}")
    yield Tool(request.param, kafkad.bootstrap), left
    left.close()


def test_list_and_describe(session: tuple[Tool, Left]) -> None:
    asked, left = session
    listed = {row["TransactionalId"]: row for row in asked.rows("list")}
    assert (listed[left.open]["TransactionState"], listed[left.done]["TransactionState"]) == (
        "Ongoing",
        "CompleteCommit",
    )
    assert listed[left.open]["ProducerId"] == str(left.producer[0])
    assert listed[left.open]["Coordinator"] == "1"
    [described] = asked.rows(f"describe --transactional-id {left.open}")
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "600000"
    assert described["TopicPartitions"] == f"{left.topic}-0"
    assert int(described["TransactionDurationMs"]) >= 0
    producers = {row["ProducerId"]: row for row in asked.rows(f"describe-producers --topic {left.topic} --partition 0")}
    assert len(producers) == 2
    assert producers[str(left.producer[0])]["CurrentTransactionStartOffset"] == "2"


def test_what_hangs_is_found_and_aborted_by_its_start_offset(session: tuple[Tool, Left]) -> None:
    asked, left = session
    assert left.readable(1) == (1, 2)
    find = f"find-hanging --topic {left.topic} --max-transaction-timeout 0"
    [found] = asked.rows(find)
    assert (found["Partition"], found["ProducerId"], found["StartOffset"]) == ("1", str(left.hanging[0]), "1")
    everywhere = asked.rows("find-hanging --broker-id 1 --max-transaction-timeout 0")
    assert left.topic in {row["Topic"] for row in everywhere}
    asked.run(f"abort --topic {left.topic} --partition 1 --start-offset 1")
    assert left.readable(1) == (3, 3)
    assert asked.rows(find) == []
    assert left.commit() == 0, "what its coordinator knows was left alone"


def test_abort_by_producer_id(session: tuple[Tool, Left]) -> None:
    asked, left = session
    producer_id, epoch = left.hanging
    asked.run(
        f"abort --topic {left.topic} --partition 1 --producer-id {producer_id} --producer-epoch {epoch} "
        "--coordinator-epoch 0"
    )
    assert left.readable(1) == (3, 3)


def test_an_id_is_ended_by_force(kafkad: KafkadProcess) -> None:
    """Only 4.3's tool can."""
    if reason := missing("4.3"):
        pytest.skip(reason)
    left = Left(kafkad, "by-force")
    Tool("4.3", kafkad.bootstrap).run(f"forceTerminateTransaction --transactionalId {left.open}")
    assert left.readable(0) == (4, 4)
    assert left.commit() == 90, "its producer is fenced"
    left.close()
