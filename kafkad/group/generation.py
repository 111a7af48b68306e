"""The generation that a group is in: its number, its protocol and its members.

It makes what members are told and what is written of it. States, deadlines and rebalances are the group's.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.errors import ErrorCode
from kafkad.group.events import DescribedMember, Joined, JoinedMember, Synced
from kafkad.group.members import Member, Members
from kafkad.group.records import GroupWritten, MemberWritten
from kafkad.group.subscriptions import Subscriptions

CONSUMER = "consumer"


class Generation:
    __slots__ = ("members", "number", "protocol", "protocol_type", "subscriptions")

    def __init__(self) -> None:
        self.number = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.subscriptions = Subscriptions(None)

    def restore(self, record: GroupWritten) -> None:
        self.number = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        for written in {member.member_id: member for member in record.members}.values():
            self.members.add(Member.restored(written, record.protocol or "", record.protocol_type))
        if record.leader is not None and record.leader in self.members:
            self.members.leader = record.leader
        self.note_subscriptions()

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    def check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode | None:
        error = self.members.check(member_id, instance_id)
        if error is None and generation != self.number:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def note_subscriptions(self) -> None:
        """An empty group of consumers subscribes to nothing; of any other kind of group nothing is known."""
        protocol = self.protocol or ""
        metadata = (member.metadata(protocol) for member in self.members)
        self.subscriptions = Subscriptions(metadata if self.is_consumer else None)

    def joined(self, member: Member) -> Joined:
        """The answer to a member's join; only the leader is told the members."""
        leader = self.members.leader or ""
        return Joined(
            ErrorCode.NONE,
            member.id,
            self.number,
            self.protocol_type,
            self.protocol,
            leader,
            members=self._joined_members() if leader == member.id else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        protocol = self.protocol or ""
        return tuple(JoinedMember(each.id, each.instance_id, each.metadata(protocol)) for each in self.members)

    def synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def described(self, *, stable: bool) -> tuple[DescribedMember, ...]:
        protocol = self.protocol or ""
        return tuple(
            DescribedMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if stable else b"",
                member.assignment if stable else b"",
            )
            for member in self.members
        )

    def record(self, group: str, state_timestamp: int, assignments: Mapping[str, bytes]) -> GroupWritten:
        """The record to be written. Members without an assignment get none; assignments to others are dropped."""
        protocol = self.protocol or ""
        return GroupWritten(
            group,
            self.protocol_type or "",
            self.number,
            self.protocol,
            self.members.leader,
            state_timestamp,
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
                for member in self.members
            ),
        )
