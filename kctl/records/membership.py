"""A member of a consumer group, by the classic protocol: joins, agrees on who reads what, beats, commits, leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.schema import Request
from kctl.errors import Disconnected, Exit, KctlError, code_name, failure
from kctl.reach.connection import Connection
from kctl.reach.session import Session
from kctl.records.assignors import Assignment, Assignor, Subscriptions, without_moving
from kctl.records.subscriptions import read_assignment, read_subscription, write_assignment, write_subscription

if TYPE_CHECKING:
    from kafkad.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
    from kafkad.wire.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitResponse

R = TypeVar("R")

SESSION_MS = 45_000
REBALANCE_MS = 60_000
HEARTBEAT_SECONDS = 3.0
_BACKOFF_SECONDS = 0.1
_PROTOCOL = "consumer"
_NO_GENERATION = -1
_LAST_FOR_ONE_GROUP = 7
"""From the next version of OffsetFetch on, it asks for several groups."""
_COORDINATOR_MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}


class Evicted(Exception):
    """The group goes on without us, or in another generation: what was not committed is lost to us."""


class Member:
    """`owned` are its partitions. `join` whenever `must_join`; `beat` often."""

    def __init__(
        self,
        session: Session,
        group: str,
        topics: Mapping[str, int],
        assignor: Assignor,
        instance: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group = group
        self.owned: list[TopicPartition] = []
        self.must_join = True
        self.cooperative = assignor.cooperative
        self.foreign: dict[str, int] = {}
        """For the group's leader: the topics that only others want, with the partitions that were assigned."""
        self._session = session
        self._topics = dict(topics)
        self._assignor = assignor
        self._instance = instance
        self._clock = clock
        self._id = ""
        self._leads = False
        self._generation = _NO_GENERATION
        self._connection: Connection | None = None
        self._next_beat = 0.0

    # --- joining

    def join(self) -> None:
        """Joins, until there is an assignment; `must_join` may be true again after it, in a cooperative rebalance."""
        deadline = self._clock() + self._session.settings.timeout + REBALANCE_MS / 1000
        while True:
            try:
                given = self._join_once()
            except Disconnected as error:
                self._pass_or_raise(error, deadline)
                continue
            if given is not None:
                break
            if self._clock() >= deadline:
                raise KctlError(f'group "{self.group}" did not finish rebalancing in time', exit_code=Exit.UNREACHABLE)
        revoked = [where for where in self.owned if where not in given]
        self.must_join = self.cooperative and bool(revoked)
        self.owned = given
        self._next_beat = self._clock() + HEARTBEAT_SECONDS

    def follow(self, topics: Mapping[str, int]) -> None:
        """From now on it wants these topics. A new one any member tells the group; of new partitions its leader sees
        to it that they are shared out."""
        self.must_join |= self._leads or topics.keys() != self._topics.keys()
        self._topics = dict(topics)

    def lose_everything(self) -> None:
        """Gives up all partitions after an eviction: other members may have them now."""
        self.owned = []
        self._generation = _NO_GENERATION
        self.must_join = True

    def _join_once(self) -> list[TopicPartition] | None:
        from kafkad.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

        metadata = write_subscription(self._assignor.name, sorted(self._topics), self.owned, self._generation)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            group_instance_id=self._instance,
            protocol_type=_PROTOCOL,
            protocols=[JoinGroupRequestProtocol(name=self._assignor.name, metadata=metadata)],
            reason="kctl consume",
        )
        answer = self._ask(request, REBALANCE_MS / 1000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            return None
        if answer.error_code:
            self._repeat_or_raise(answer.error_code)
            return None
        self._id, self._generation = answer.member_id, answer.generation_id
        return self._synced(answer)

    def _synced(self, joined: JoinGroupResponse) -> list[TopicPartition] | None:
        from kafkad.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

        shares = []
        self._leads = joined.leader == self._id
        self.foreign = {}
        if self._leads and not joined.skip_assignment:
            assignment = self._shared_out(joined.members)
            shares = [
                SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(partitions))
                for member, partitions in assignment.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=self._instance,
            protocol_type=_PROTOCOL,
            protocol_name=self._assignor.name,
            assignments=shares,
        )
        answer = self._ask(request, REBALANCE_MS / 1000)
        if answer.error_code:
            self._repeat_or_raise(answer.error_code)
            return None
        return read_assignment(answer.assignment)

    def _shared_out(self, members: Iterable[JoinGroupResponseMember]) -> Assignment:
        subscriptions: Subscriptions = {
            member.member_id: read_subscription(self._assignor.name, member.metadata, member.group_instance_id)
            for member in members
        }
        assignment = self._assignor.assign(subscriptions, self._partitions_of(subscriptions))
        return without_moving(assignment, subscriptions) if self.cooperative else assignment

    def _partitions_of(self, subscriptions: Subscriptions) -> Mapping[str, int]:
        """Others may want topics that we do not."""
        foreign = {topic for wants in subscriptions.values() for topic in wants.topics} - self._topics.keys()
        if foreign:
            found = self._session.metadata(sorted(foreign))
            self.foreign = {topic.name: len(topic.partitions) for topic in found if not topic.error_code}
        return self._topics | self.foreign

    def _repeat_or_raise(self, code: int) -> None:
        if code in _COORDINATOR_MOVED:
            self._forget_coordinator()
            time.sleep(_BACKOFF_SECONDS)
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
        elif code not in _JOIN_AGAIN:
            raise self._refusal(code)

    def _refusal(self, code: int) -> KctlError:
        hints = []
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            hints = [f"its members have no assignor in common with ours: {self._assignor.name}; --assignor has others"]
        return failure(code, f'group "{self.group}"', hints=hints)

    # --- being a member

    def beat(self) -> None:
        """Sends a heartbeat when it is due. Raises Evicted if the group has gone on without us."""
        from kafkad.wire.messages.heartbeat import HeartbeatRequest

        if self.must_join or self._clock() < self._next_beat:
            return
        self._next_beat = self._clock() + HEARTBEAT_SECONDS
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=self._instance,
        )
        try:
            code = self._ask(request).error_code
        except Disconnected:
            self._next_beat = self._clock() + _BACKOFF_SECONDS
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif code:
            self._out_or_raise(code)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """True once all offsets are committed, False if the group has to be joined again before. Raises Evicted when it
        is too late for that."""
        from kafkad.wire.messages.offset_commit import (
            OffsetCommitRequest,
            OffsetCommitRequestPartition,
            OffsetCommitRequestTopic,
        )

        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            committed = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(topic, []).append(committed)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            group_instance_id=self._instance,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        answer = self._ask_patiently(request, _codes_of_partitions)
        codes = _codes_of_partitions(answer) - {0}
        if ErrorCode.REBALANCE_IN_PROGRESS in codes:
            self.must_join = True
            return False
        if moved := codes & _COORDINATOR_MOVED:
            raise failure(moved.pop(), f'group "{self.group}": what was printed last cannot be committed')
        if codes:
            self._out_or_raise(codes.pop())
        return True

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of those of the partitions that have one."""
        from kafkad.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        asked = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
        request = OffsetFetchRequest(group_id=self.group, topics=asked)
        answer = self._ask_patiently(request, lambda answer: {answer.error_code}, last_version=_LAST_FOR_ONE_GROUP)
        if answer.error_code:
            raise self._refusal(answer.error_code)
        return {
            TopicPartition(topic.name, part.partition_index): part.committed_offset
            for topic in answer.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    def leave(self) -> None:
        """Leaves at once, rather than when the session times out; a static member stays."""
        from kafkad.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

        if self._id and self._instance is None:
            who = MemberIdentity(member_id=self._id, reason="kctl consume is done")
            try:
                connection = self._coordinator()
                version = connection.version_of(LeaveGroupRequest)
                request = (
                    LeaveGroupRequest(group_id=self.group, members=[who])
                    if version is not None and version >= 3
                    else LeaveGroupRequest(group_id=self.group, member_id=self._id)
                )
                self._ask(request)
            except KctlError:
                pass  # its session will end
        self._forget_coordinator()

    def _out_or_raise(self, code: int) -> None:
        if code in _COORDINATOR_MOVED:
            self._forget_coordinator()
        elif code in _JOIN_AGAIN:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._id = ""
            raise Evicted(code_name(code))
        else:
            raise self._refusal(code)

    # --- the coordinator

    def _ask(self, request: Request[R], patience: float = 0.0, last_version: int | None = None) -> R:
        connection = self._coordinator()
        version = connection.version_of(request)
        if version is not None and last_version is not None:
            version = min(version, last_version)
        try:
            return connection.call(request, self._clock() + self._session.settings.timeout + patience, version)
        except Disconnected:
            self._forget_coordinator()
            raise

    def _coordinator(self) -> Connection:
        """A connection of its own: a join may take long to be answered."""
        if self._connection is None:
            self._connection = self._session.connect(self._coordinator_id())
        return self._connection

    def _coordinator_id(self) -> int:
        try:
            found = self._session.coordinators([self.group])[self.group]
        except KctlError as error:
            found = error
        if isinstance(found, int):
            return found
        raise Disconnected(found.what, hints=found.hints) if found.exit_code is Exit.UNREACHABLE else found

    def _ask_patiently(
        self, request: Request[R], codes: Callable[[R], set[int]], *, last_version: int | None = None
    ) -> R:
        """The coordinator's answer, wherever it is in the end: it may move, or be away, for as long as the time-out."""
        deadline = self._clock() + self._session.settings.timeout
        while True:
            try:
                answer = self._ask(request, last_version=last_version)
            except Disconnected as error:
                self._pass_or_raise(error, deadline)
                continue
            if not codes(answer) & _COORDINATOR_MOVED or self._clock() >= deadline:
                return answer
            self._forget_coordinator()
            time.sleep(_BACKOFF_SECONDS)

    def _forget_coordinator(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pass_or_raise(self, error: KctlError, deadline: float) -> None:
        if self._clock() >= deadline:
            raise error
        time.sleep(_BACKOFF_SECONDS)


def _codes_of_partitions(answer: OffsetCommitResponse) -> set[int]:
    return {part.error_code for topic in answer.topics for part in topic.partitions}
