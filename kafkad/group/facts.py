"""What is known of a group, and what can be told from it alone: nothing here changes a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kafkad.errors import ErrorCode
from kafkad.group.events import DescribedMember, Description, Joined, JoinedMember, State, Synced
from kafkad.group.members import Member, Members
from kafkad.group.records import GroupWritten, MemberWritten
from kafkad.group.subscriptions import topics_of

CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Those of group.*; the rebalance delay is the one of `group.initial.rebalance.delay.ms`."""

    rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int


class GroupFacts:
    """`recorded`: the log has something of this group, which a deletion has to take back."""

    __slots__ = (
        "_members",
        "_pending",
        "_settings",
        "_subscribed",
        "generation",
        "name",
        "protocol",
        "protocol_type",
        "recorded",
        "state",
        "state_timestamp",
    )

    def __init__(self, name: str, settings: GroupSettings, state_timestamp: int) -> None:
        self.name = name
        self.state = State.EMPTY
        self.state_timestamp = state_timestamp
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.recorded = False
        self._settings = settings
        self._members = Members()
        self._pending: dict[str, float] = {}
        """Ids that were given out and not yet used, and until when they may be."""
        self._subscribed: frozenset[str] | None = None

    @classmethod
    def restored(cls, record: GroupWritten, settings: GroupSettings) -> Self:
        """As the log has it: with members it is Stable, whatever else was going on."""
        group = cls(record.group, settings, record.state_timestamp)
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.generation = record.generation
        group.recorded = True
        for written in {member.member_id: member for member in record.members}.values():
            group._members.add(Member.restored(written, record.protocol or "", record.protocol_type))
        if record.members:
            group.state = State.STABLE
            if record.leader is not None and record.leader in group._members:
                group._members.leader = record.leader
        return group

    def undeleted(self) -> Self:
        """It lives on: that it was deleted could not be written."""
        group = type(self)(self.name, self._settings, self.state_timestamp)
        group.protocol_type = self.protocol_type
        group.generation = self.generation
        group.recorded = self.recorded
        group._subscribed = self._subscribed
        return group

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that this generation consumes (KIP-211); None when that cannot be known."""
        return self._subscribed

    def subscribes_to(self, topic: str) -> bool:
        return self._subscribed is None or topic in self._subscribed

    def describe(self) -> Description:
        stable = self.state is State.STABLE
        protocol = (self.protocol or "") if stable else ""
        return Description(
            self.state,
            self.protocol_type or "",
            protocol,
            tuple(
                DescribedMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(protocol) if stable else b"",
                    member.assignment if stable else b"",
                )
                for member in self._members
            ),
        )

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode | None:
        error = self._members.check(member_id, instance_id)
        if error is None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _subscriptions(self) -> frozenset[str] | None:
        """An empty group of consumers subscribes to nothing; of any other kind of group nothing is known."""
        if not self.is_consumer:
            return None
        protocol = self.protocol or ""
        return topics_of({member.metadata(protocol) for member in self._members})

    def _joined(self, member: Member) -> Joined:
        """Only the leader hears of the members."""
        leader = self._members.leader or ""
        return Joined(
            ErrorCode.NONE,
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader,
            members=self._joined_members() if leader == member.id else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        protocol = self.protocol or ""
        return tuple(JoinedMember(one.id, one.instance_id, one.metadata(protocol)) for one in self._members)

    def _synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _record(self, assignments: Mapping[str, bytes]) -> GroupWritten:
        """As it is to be written. Who is left out is assigned nothing; who is no member is not heard of again."""
        protocol = self.protocol or ""
        return GroupWritten(
            self.name,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self._members.leader,
            self.state_timestamp,
            tuple(
                MemberWritten(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(protocol),
                    assignments.get(member.id, b""),
                )
                for member in self._members
            ),
        )
