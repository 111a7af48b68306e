"""SIGKILL of the broker while it coordinates: groups go on, and no committed offset is lost."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from tests.broker import KafkadProcess
from tests.clients.asker import Asker
from tests.clients.members import COMMIT, NOT_YET, Member, commit, group_of, stable_group, wait_for_coordinator
from tests.crash.writers import Writer

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
GROUP, TOPIC = "crashing", "read"
KILLS = 15

pytestmark = pytest.mark.slow


@pytest.fixture
def kafkad(tmp_path: Path) -> Iterator[KafkadProcess]:
    with KafkadProcess(tmp_path, SETTINGS) as kafkad:
        with asking(kafkad) as asker:
            asker.create(TOPIC)
        yield kafkad


@contextlib.contextmanager
def asking(kafkad: KafkadProcess) -> Iterator[Asker]:
    """From when the broker has loaded the group."""
    asker = Asker(kafkad.port)
    with contextlib.closing(asker.client):
        wait_for_coordinator(asker, GROUP)
        yield asker


def crash(kafkad: KafkadProcess, *members: Member) -> None:
    """Afterwards the members are connected to the broker that is there now."""
    kafkad.kill()
    kafkad.start()
    with asking(kafkad):
        for member in members:
            member.reconnect(kafkad.port)


def committed(kafkad: KafkadProcess) -> int:
    question = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    with asking(kafkad) as asker:
        return int(asker.ask("OffsetFetch", 7, question).topics[0].partitions[0].committed_offset)


def state(kafkad: KafkadProcess) -> str:
    with asking(kafkad) as asker:
        return str(asker.ask("DescribeGroups", 5, {"groups": [GROUP]}).groups[0].group_state)


def settle(kafkad: KafkadProcess, leader: Member, follower: Member) -> None:
    """Both have sent their joins: they get through the generation, and commit."""
    leader.joined()
    follower.joined()
    leader.sync({leader.id: b"one", follower.id: b"another"})
    assert follower.sync({}).assignment == b"another"
    assert state(kafkad) == "Stable"
    assert committed(kafkad) == 7
    assert follower.commit(TOPIC, 8) == ErrorCode.NONE
    assert committed(kafkad) == 8


def test_empty_group(kafkad: KafkadProcess) -> None:
    with stable_group(kafkad.port, GROUP, "first") as (member,):
        assert member.commit(TOPIC, 7) == ErrorCode.NONE
        generation = member.generation
        member.leave()
    crash(kafkad)
    assert state(kafkad) == "Empty"
    assert committed(kafkad) == 7
    with stable_group(kafkad.port, GROUP, "first") as (member,):
        assert member.generation > generation
        assert member.commit(TOPIC, 8) == ErrorCode.NONE
    assert committed(kafkad) == 8


def test_stable_group(kafkad: KafkadProcess) -> None:
    with stable_group(kafkad.port, GROUP, "first", "second") as (first, second):
        assert first.commit(TOPIC, 7) == ErrorCode.NONE
        crash(kafkad, first, second)
        assert state(kafkad) == "Stable"
        assert committed(kafkad) == 7
        assert [first.heartbeat(), second.heartbeat()] == [ErrorCode.NONE] * 2
        assert second.sync({}).assignment == b"for second"
        assert second.commit(TOPIC, 8) == ErrorCode.NONE
        assert committed(kafkad) == 8


def test_group_whose_members_join(kafkad: KafkadProcess) -> None:
    """The generation on disk is the one before, and has both members."""
    with stable_group(kafkad.port, GROUP, "first", "second") as (first, second):
        assert first.commit(TOPIC, 7) == ErrorCode.NONE
        first.start_join()
        second.wait_for_rebalance()
        crash(kafkad, first, second)
        assert second.heartbeat() == ErrorCode.NONE
        first.start_join()
        second.wait_for_rebalance()
        second.start_join()
        settle(kafkad, first, second)


def test_group_whose_leader_has_not_synchronised(kafkad: KafkadProcess) -> None:
    """The generation on disk is the one before, which did not have the second member."""
    with asking(kafkad) as asker:
        answer = asker.ask("OffsetCommit", COMMIT, commit(TOPIC, 7) | {"group_id": GROUP})
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    with group_of(kafkad.port, GROUP, "first", "second") as (first, second):
        assert state(kafkad) == "CompletingRebalance"
        crash(kafkad, first, second)
        assert first.heartbeat() == ErrorCode.ILLEGAL_GENERATION
        assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        second.id = ""
        second.start_join()
        first.start_join()
        settle(kafkad, first, second)


class Committer(Writer):
    """Commits ever higher offsets, over a connection that it opens again whenever it breaks."""

    def __init__(self, port: int) -> None:
        super().__init__("committer")
        self._port = port
        self.committed = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError):
                asker = Asker(self._port)
                with contextlib.closing(asker.client):
                    while not self._stopping.is_set():
                        self._commit(asker, self.committed + 1)

    def _commit(self, asker: Asker, offset: int) -> None:
        question = commit(TOPIC, offset) | {"group_id": GROUP, "generation_id_or_member_epoch": -1}
        code = asker.ask("OffsetCommit", COMMIT, question).topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self.committed = offset
        else:
            assert code in NOT_YET, code


def test_no_committed_offset_is_lost(kafkad: KafkadProcess) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Committer(kafkad.port) as committer:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0, 0.2))
            kafkad.kill()
            before = committer.committed
            kafkad.start()
            assert committed(kafkad) >= before
    assert committer.committed > KILLS
    assert committed(kafkad) >= committer.committed
