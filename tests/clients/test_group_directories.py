"""Groups move with the data directory: what real Kafka 3.9 wrote to `__consumer_offsets` kafkad reads, and back."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

from kafkad.errors import ErrorCode
from tests.broker import KafkadProcess
from tests.clients.asker import Asker, Plain
from tests.clients.conftest import Broker
from tests.clients.left_behind import LeftBehind, by_kafka
from tests.clients.members import COMMIT, Member, commit, stable_group, wait_for_coordinator
from tests.clients.probes import comparable
from tests.oracle.adoption import AdoptingKafka
from tests.oracle.kafka import missing

SECONDS = 30
GOLDEN = Path(__file__).parent.parent / "golden" / "logs" / "main"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.retention.minutes": "2147483647",  # the golden ones are of 2026
}
GONE, LEFT, STAYING = GROUPS = ["gone", "left", "staying"]

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


class Written(NamedTuple):
    """The member that is in its group, and all that the broker told of the groups."""

    member: Member
    shown: Plain


@pytest.fixture(autouse=True, scope="module")
def needs_kafka() -> None:
    if reason := missing("3.9"):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def of_kafka(tmp_path_factory: pytest.TempPathFactory) -> LeftBehind[Written]:
    return by_kafka(tmp_path_factory.mktemp("of-kafka"), SETTINGS, write)


def first_kafkad(scratch: Path) -> KafkadProcess:
    return KafkadProcess(scratch / "first", SETTINGS, log_dirs=[scratch / "data"])


def second_broker(kind: str, scratch: Path) -> AbstractContextManager[Broker]:
    if kind == "kafka":
        return AdoptingKafka(scratch / "data", SETTINGS)
    return KafkadProcess(scratch / "second", SETTINGS, log_dirs=[scratch / "data"])


@contextlib.contextmanager
def asking(broker: Broker, *groups: str) -> Iterator[Asker]:
    """From when the broker has loaded the groups."""
    asker = Asker(int(broker.bootstrap.rpartition(":")[2]))
    with contextlib.closing(asker.client):
        for group in groups:
            wait_for_coordinator(asker, group)
        yield asker


def shown(asker: Asker, groups: list[str]) -> Plain:
    """Everything that a broker tells of the groups."""
    asked = [{"group_id": group, "topics": None} for group in groups]
    answers = [
        asker.ask("ListGroups", 5, {}).groups,
        asker.ask("DescribeGroups", 5, {"groups": groups}).groups,
        asker.ask("OffsetFetch", 9, {"groups": asked}).groups,
    ]
    return [sorted((comparable(item, "") for item in answer), key=repr) for answer in answers]


@pytest.mark.client("data directories", "golden groups of Kafka 3.9")
def test_golden_groups_are_shown_as_kafka_shows_them(tmp_path: Path) -> None:
    groups = [f"group-{i}" for i in range(3)] + [f"simple-{i}" for i in range(6)] + ["txn-group"]
    found = {}
    for kind in ("kafka", "kafkad"):
        scratch = tmp_path / kind
        shutil.copytree(GOLDEN, scratch / "data")
        with second_broker(kind, scratch) as broker, asking(broker, *groups) as asker:
            found[kind] = shown(asker, groups)
            with stable_group(asker.port, "group-1", "newcomer") as (member,):
                assert member.generation == 6
    assert found["kafkad"] == found["kafka"]
    assert len(found["kafka"][0]) == len(groups) - 2  # one of them was deleted, and one lost all its offsets


def write(broker: Broker) -> Written:
    with asking(broker, *GROUPS) as asker:
        return Written(fill(asker), shown(asker, GROUPS))


def fill(asker: Asker) -> Member:
    """One group is deleted, one left by its members, and one is in use: its member is returned."""
    asker.create("read", retention_ms="-1")
    for group in (GONE, LEFT):
        with stable_group(asker.port, group, "first", "second") as members:
            assert members[1].commit("read", 1) == ErrorCode.NONE
            assert members[0].commit("read", 2, "of é") == ErrorCode.NONE
            for member in members:
                member.leave()
    (deleted,) = asker.ask("DeleteGroups", 2, {"groups_names": [GONE]}).results
    assert deleted.error_code == ErrorCode.NONE
    simple = asker.ask("OffsetCommit", COMMIT, commit("read", 3) | {"group_id": STAYING})
    assert simple.topics[0].partitions[0].error_code == ErrorCode.NONE
    with stable_group(asker.port, STAYING, "first", group_instance_id="one") as members:
        assert members[0].commit("read", 4) == ErrorCode.NONE
        return members[0]


@pytest.mark.client("data directories", "groups written by kafka, continued by kafkad")
def test_groups_of_kafka_are_continued(of_kafka: LeftBehind[Written], tmp_path: Path) -> None:
    of_kafka.copy("stopped", tmp_path / "data")
    check_continued("kafkad", tmp_path, of_kafka.told)


@pytest.mark.client("data directories", "groups written by kafkad, continued by {reader}")
@pytest.mark.parametrize("reader", ["kafka", "kafkad"])
def test_groups_of_kafkad_are_continued(reader: str, tmp_path: Path) -> None:
    with first_kafkad(tmp_path) as first:
        written = write(first)
    check_continued(reader, tmp_path, written)


@pytest.mark.client("data directories", "groups of a kafka that was killed, continued by kafkad")
def test_groups_of_a_killed_kafka_are_continued(of_kafka: LeftBehind[Written], tmp_path: Path) -> None:
    of_kafka.copy("killed", tmp_path / "data")
    check_continued("kafkad", tmp_path, of_kafka.told)


@pytest.mark.client("data directories", "groups of a kafkad that was killed, continued by kafka")
def test_kafka_continues_the_groups_of_a_killed_kafkad(tmp_path: Path) -> None:
    with first_kafkad(tmp_path) as first:
        written = write(first)
        first.kill()
    check_continued("kafka", tmp_path, written)


def check_continued(reader: str, scratch: Path, written: Written) -> None:
    member = written.member
    with second_broker(reader, scratch) as broker, asking(broker, *GROUPS) as asker:
        assert shown(asker, GROUPS) == written.shown
        member.reconnect(asker.port)
        with contextlib.closing(member):
            assert member.heartbeat() == ErrorCode.NONE
            assert member.sync({}).assignment == b"for first"
            assert member.commit("read", 5) == ErrorCode.NONE
        with stable_group(asker.port, LEFT, "first") as (member,):
            assert member.generation > 3
            member.leave()
        assert consume_one(broker.bootstrap, LEFT) == 2


def consume_one(bootstrap: str, group: str) -> int:
    """The offset at which the group goes on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "error"})
    consumer.subscribe(["read"])
    try:
        message = consumer.poll(SECONDS)
        assert message is not None and message.error() is None, message
        return int(message.offset())
    finally:
        consumer.close()
