"""The members of one group: leader, waiting joins, instance ids, and the protocols that all of them support."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf

from kafkad.errors import ErrorCode
from kafkad.group.events import Join, Respond
from kafkad.group.records import MemberWritten
from kafkad.group.votes import most_voted

Protocols = tuple[tuple[str, bytes], ...]


class Member:
    """`joining` and `syncing` are its requests that wait for an answer. Until its first generation it is `new`. A
    restored one has no deadline until its group starts, or it sends something."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "id",
        "instance_id",
        "joining",
        "new",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, join: Join) -> None:
        self.id = member_id
        self.instance_id = join.instance_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.protocols = join.protocols
        self.assignment = b""
        self.joining: Respond | None = join.respond
        self.syncing: Respond | None = None
        self.new = True
        self.deadline_ms = 0.0

    @classmethod
    def restored(cls, record: MemberWritten, protocol: str, protocol_type: str) -> Member:
        member = cls(
            record.member_id,
            Join(
                respond=_nobody,
                member_id=record.member_id,
                new_id="",
                instance_id=record.group_instance_id,
                client_id=record.client_id,
                client_host=record.client_host,
                session_timeout_ms=record.session_timeout,
                rebalance_timeout_ms=record.rebalance_timeout,
                protocol_type=protocol_type,
                protocols=((protocol, record.subscription),),
            ),
        )
        member.assignment = record.assignment
        member.joining = None
        member.new = False
        member.deadline_ms = inf
        return member

    def heard(self, now_ms: float) -> None:
        self.deadline_ms = now_ms + self.session_timeout_ms

    def next_look_ms(self, now_ms: float) -> float:
        """A heartbeat may bring the end of its session nearer, and moves no timer: so it is looked at again by then."""
        return min(self.deadline_ms, now_ms + self.session_timeout_ms)

    @property
    def can_expire(self) -> bool:
        """A member that waits for an answer cannot send heartbeats; a new one that gave up must still expire."""
        return self.new or (self.joining is None and self.syncing is None)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """Members name protocols in the order they like them."""
        return next(name for name, _ in self.protocols if name in candidates)


def _nobody(answer: object) -> None:
    """A placeholder for the request that waited before a restart."""


class Members:
    """The members of a group, in the order they joined. The first one leads until it leaves."""

    __slots__ = ("_by_id", "_by_instance", "_knowing", "joining", "leader")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._knowing: Counter[str] = Counter()
        self.joining = 0
        """The number of members that wait for an answer to their join."""
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """None for a member; else the error, also for a static one whose place another has taken (KIP-345)."""
        if instance_id is not None:
            current = self._by_instance.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return None if member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def static(self) -> int:
        return len(self._by_instance)

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the most patient one has to rejoin."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self._by_id)

    def add(self, member: Member) -> None:
        self._by_id[member.id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self._knowing.update(_names(member.protocols))
        if member.joining is not None:
            self.joining += 1

    def remove(self, member: Member) -> None:
        """The caller has answered what it waited for."""
        del self._by_id[member.id]
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == member.id:
            del self._by_instance[member.instance_id]
        self._forget(member.protocols)
        if self.leader == member.id:
            self.leader = next(iter(self._by_id), None)

    def rename(self, member: Member, new_id: str) -> None:
        """A static member came back: it takes the place of the one it was, with its assignment and its leadership."""
        was = member.id
        del self._by_id[was]
        member.id = new_id
        self._by_id[new_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = new_id
        if self.leader == was:
            self.leader = new_id

    def rejoin(self, member: Member, join: Join) -> None:
        """The caller has answered the join that waited before."""
        if member.joining is None:
            self.joining += 1
        member.joining = join.respond
        self._forget(member.protocols)
        member.protocols = join.protocols
        self._knowing.update(_names(member.protocols))
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.session_timeout_ms

    def answered(self, member: Member) -> Respond | None:
        """Takes the waiting join of a member, which is being answered."""
        respond, member.joining = member.joining, None
        if respond is not None:
            self.joining -= 1
        return respond

    def elect(self) -> bool:
        """The leader goes on if it has rejoined, or else the first that has; whether anybody did."""
        if self.leader is None:
            return False
        if self._by_id[self.leader].joining is None:
            joined = next((member.id for member in self._by_id.values() if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def any_knows(self, protocols: Protocols) -> bool:
        """True if one of these is known to every member there is."""
        count = len(self._by_id)
        return any(self._knowing[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """The one with the most votes among those that all know."""
        count = len(self._by_id)
        candidates = {name for name, knowing in self._knowing.items() if knowing == count}
        return most_voted(member.vote(candidates) for member in self._by_id.values())

    def _forget(self, protocols: Protocols) -> None:
        for name in _names(protocols):
            self._knowing[name] -= 1
            if not self._knowing[name]:
                del self._knowing[name]


def _names(protocols: Protocols) -> Iterable[str]:
    """A protocol that is named twice is known once."""
    return {name for name, _ in protocols}
