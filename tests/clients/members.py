"""Members of consumer groups by hand, one request after the other, so that a group can be held in any state."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from kafkad.errors import ErrorCode
from kafkad.wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafkad.wire.schema import encode
from tests.clients.asker import Asker, Plain

SECONDS = 30
SESSION_MS = 120_000
"""Longer than any test takes on a busy machine."""
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 9, 5, 4, 5, 9
"""In which versions members ask, unless told."""
NOT_YET: Set[int] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
}  # fmt: skip


def subscription(*topics: str) -> bytes:
    return bytes(2) + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def assignment(topic: str, partitions: list[int]) -> bytes:
    share = [AssignmentTopicPartition(topic=topic, partitions=partitions)]
    return bytes(2) + encode(ConsumerProtocolAssignment(assigned_partitions=share), 0)


def join(group: str, *protocols: str, topic: str = "any", **more: Plain) -> Plain:
    offered = [{"name": name, "metadata": subscription(topic)} for name in protocols or ("range",)]
    return {
        "group_id": group, "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, "member_id": "",
        "protocol_type": "consumer", "protocols": offered, "reason": "probing", **more,
    }  # fmt: skip


def eventually(code: Callable[[], int], wanted: int, *, instead: Set[int]) -> None:
    """Asks until the wanted code comes; only those of `instead` may come before it."""
    deadline = time.monotonic() + SECONDS
    while (got := code()) != wanted:
        assert got in instead and time.monotonic() < deadline, got


def wait_for_coordinator(asker: Asker, group: str) -> None:
    """Returns when the broker coordinates the group: its first question makes `__consumer_offsets`."""
    eventually(lambda: asker.ask("FindCoordinator", 3, {"key": group}).error_code, ErrorCode.NONE, instead=NOT_YET)
    stranger = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
    eventually(
        lambda: asker.ask("Heartbeat", HEARTBEAT, stranger).error_code,
        ErrorCode.UNKNOWN_MEMBER_ID,
        instead=NOT_YET | {ErrorCode.NONE},  # a coordinator that loads tells members that all is well
    )


class Member:
    """A member on a connection of its own. `name` begins its member id."""

    def __init__(self, port: int, group: str, name: str, *protocols: str, **joining: Plain) -> None:
        self.asker = Asker(port, client_id=name)
        self._name = name
        self.group, self.id, self.generation = group, "", -1
        self.protocol: str | None = None
        self._question = join(group, *protocols, **joining)
        self._instance = joining.get("group_instance_id")

    def start_join(self, version: int = JOIN) -> None:
        """Sends what `joined` gets the answer to, with the id that the coordinator asked for."""
        if version >= 4 and not self.id and self._instance is None:
            refused = self.asker.ask("JoinGroup", version, self._question)
            assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED, refused
            self.id = refused.member_id
        self.asker.send("JoinGroup", version, self._question | {"member_id": self.id})

    def joined(self, version: int = JOIN) -> Any:
        answer = self.asker.receive("JoinGroup", version)
        assert answer.error_code == ErrorCode.NONE, answer
        self.id, self.generation, self.protocol = answer.member_id, answer.generation_id, answer.protocol_name
        return answer

    def join(self, version: int = JOIN) -> Any:
        self.start_join(version)
        return self.joined(version)

    def identity(self, **more: Plain) -> Plain:
        """The fields that most questions of a member begin with."""
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return asked | {"group_instance_id": self._instance, **more}

    def assignments(self, shares: Mapping[str, bytes]) -> Plain:
        listed = [{"member_id": member, "assignment": share} for member, share in shares.items()]
        kind = self._question["protocol_type"]
        return self.identity(protocol_type=kind, protocol_name=self.protocol, assignments=listed)

    def sync(self, shares: Mapping[str, bytes]) -> Any:
        answer = self.asker.ask("SyncGroup", SYNC, self.assignments(shares))
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def heartbeat(self) -> int:
        return int(self.asker.ask("Heartbeat", HEARTBEAT, self.identity()).error_code)

    def wait_for_rebalance(self) -> None:
        eventually(self.heartbeat, ErrorCode.REBALANCE_IN_PROGRESS, instead={ErrorCode.NONE})

    def commit(self, topic: str, offset: int, metadata: str = "") -> int:
        question = commit(topic, offset, metadata) | self.identity()
        answer = self.asker.ask("OffsetCommit", COMMIT, question | {"generation_id_or_member_epoch": self.generation})
        return int(answer.topics[0].partitions[0].error_code)

    def leave(self) -> None:
        question = {"group_id": self.group, "members": [{"member_id": self.id, "group_instance_id": self._instance}]}
        answer = self.asker.ask("LeaveGroup", LEAVE, question)
        assert [member.error_code for member in answer.members] == [ErrorCode.NONE], answer

    def reconnect(self, port: int) -> None:
        self.close()
        self.asker = Asker(port, client_id=self._name)

    def close(self) -> None:
        self.asker.client.close()


def commit(topic: str, offset: int, metadata: str | None = "", **more: Plain) -> Plain:
    """Of a topic's partition 0, by nobody's member."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata, **more}
    return {"member_id": "", "topics": [{"name": topic, "partitions": [partition]}]}


@contextlib.contextmanager
def group_of(port: int, group: str, *members: str, **joining: Plain) -> Iterator[list[Member]]:
    """The members in one generation, not yet synchronised; the first one leads."""
    everyone = [Member(port, group, name, **joining) for name in members]
    try:
        everyone[0].join()
        for i, newcomer in enumerate(everyone[1:], 1):
            everyone[0].sync({})
            newcomer.start_join()
            for member in everyone[:i]:
                member.wait_for_rebalance()
                member.start_join()
            for member in everyone[: i + 1]:
                member.joined()
        yield everyone
    finally:
        for member in everyone:
            member.close()


@contextlib.contextmanager
def stable_group(port: int, group: str, *members: str, **joining: Plain) -> Iterator[list[Member]]:
    """The members in one generation, each with `for NAME` as its share."""
    with group_of(port, group, *members, **joining) as everyone:
        shares = {member.id: f"for {name}".encode() for member, name in zip(everyone, members, strict=True)}
        for member in everyone:
            member.sync(shares if member is everyone[0] else {})
        yield everyone
