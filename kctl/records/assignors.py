"""Assignors: they divide partitions among the members of a group as Kafka's own do.

An assignor is a function of the members' subscriptions and the topics' numbers of partitions, and so can be anyone's:
`--assignor module:callable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.records.user_code import load_callable

Partition = tuple[str, int]


class Subscription(NamedTuple):
    """A member's topics, and the partitions it owned in which generation (-1: not known)."""

    topics: tuple[str, ...]
    owned: tuple[Partition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


Subscriptions = Mapping[str, Subscription]
Assignment = dict[str, list[Partition]]
Assign = Callable[[Subscriptions, Mapping[str, int]], Assignment]


class Assignor(NamedTuple):
    name: str
    """The name that members tell the coordinator: all members of a group have one in common."""
    assign: Assign
    cooperative: bool = False
    """Members keep what they have while the group rebalances, and give up only what goes to others."""


def assignor(name: str) -> Assignor | None:
    """None for a name that means nothing."""
    if ":" in name:
        return Assignor(name, _custom(name))
    return _ASSIGNORS.get(name)


def _custom(name: str) -> Assign:
    """An assignor from user code; members and partitions that it invents are errors."""
    decide = load_callable(name)

    def assign(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
        given = decide(subscriptions, partitions)
        there = {(topic, index) for topic, count in partitions.items() for index in range(count)}
        try:
            assignment = {
                member: [(topic, index) for topic, index in given.get(member, ())] for member in subscriptions
            }
        except (AttributeError, TypeError, ValueError):
            raise KctlError(
                f"assignor {name} did not return a mapping of members to (topic, partition) pairs"
            ) from None
        wrong = [partition for owned in assignment.values() for partition in owned if partition not in there]
        if wrong or given.keys() - subscriptions.keys():
            raise KctlError(
                f"assignor {name} assigned a member or partition that does not exist: {(wrong or list(given))[0]}"
            )
        return assignment

    return assign


def _order(subscriptions: Subscriptions, topic: str) -> list[str]:
    """The members that want a topic; static ones by the name that stays theirs."""
    members = [member for member, wants in subscriptions.items() if topic in wants.topics]
    return sorted(members, key=lambda member: _sort_key(member, subscriptions[member]))


def _sort_key(member: str, subscription: Subscription) -> tuple[bool, str]:
    instance = subscription.instance_id
    return (instance is None, member if instance is None else instance)


def _topics(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> list[str]:
    wanted = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    return sorted(topic for topic in wanted if topic in partitions)


def assign_range(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
    """Topic by topic, neighbours to each member; the first members get one more if it does not come out even."""
    assignment: Assignment = {member: [] for member in subscriptions}
    for topic in _topics(subscriptions, partitions):
        members = _order(subscriptions, topic)
        each, more = divmod(partitions[topic], len(members))
        first = 0
        for at, member in enumerate(members):
            last = first + each + (at < more)
            assignment[member] += [(topic, index) for index in range(first, last)]
            first = last
    return assignment


def assign_round_robin(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
    """All partitions of all topics dealt out in turn, to the next member that wants the topic."""
    assignment: Assignment = {member: [] for member in subscriptions}
    members = sorted(subscriptions, key=lambda member: _sort_key(member, subscriptions[member]))
    turn = 0
    for topic in _topics(subscriptions, partitions):
        for index in range(partitions[topic]):
            while topic not in subscriptions[members[turn % len(members)]].topics:
                turn += 1
            assignment[members[turn % len(members)]].append((topic, index))
            turn += 1
    return assignment


def assign_sticky(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
    """The most even assignment and, of those, the one that takes fewest partitions from the members that have them."""
    assignment = _kept(subscriptions, partitions)
    if len({frozenset(wants.topics) for wants in subscriptions.values()}) == 1:
        _deal_out(
            assignment,
            [(topic, index) for topic in _topics(subscriptions, partitions) for index in range(partitions[topic])],
        )
        return assignment
    taken = {partition for kept in assignment.values() for partition in kept}
    wanting = {topic: _order(subscriptions, topic) for topic in _topics(subscriptions, partitions)}
    for topic, members in wanting.items():
        for index in range(partitions[topic]):
            if (topic, index) not in taken:
                least = min(members, key=lambda member: len(assignment[member]))
                assignment[least].append((topic, index))
    _even_out(assignment, wanting)
    return assignment


def _deal_out(assignment: Assignment, wanted: Sequence[Partition]) -> None:
    """Among members that all want the same. Each keeps what it has up to its share; the rest goes in turn to those
    below theirs, as in Kafka's sticky assignors."""
    share, more = divmod(len(wanted), len(assignment))
    for member in sorted(assignment):
        keeps_one_more = more > 0 and len(assignment[member]) > share
        more -= keeps_one_more
        del assignment[member][share + keeps_one_more :]
    taken = {partition for kept in assignment.values() for partition in kept}
    below = deque(member for member in sorted(assignment) if len(assignment[member]) < share)
    filled = deque(member for member in sorted(assignment) if len(assignment[member]) == share)
    for partition in wanted:
        if partition not in taken:
            member = (below or filled).popleft()
            assignment[member].append(partition)
            if len(assignment[member]) <= share:
                (below if len(assignment[member]) < share else filled).append(member)


def _kept(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
    """The owned partitions that members may keep; of two that claim the same one, the later generation has it."""
    owner: dict[Partition, str] = {}
    for member, subscription in subscriptions.items():
        for topic, index in subscription.owned:
            if topic not in subscription.topics or index >= partitions.get(topic, 0):
                continue
            rival = owner.get((topic, index))
            if rival is None or subscriptions[rival].generation < subscription.generation:
                owner[topic, index] = member
    assignment: Assignment = {member: [] for member in subscriptions}
    for partition, member in owner.items():
        assignment[member].append(partition)
    return assignment


def _even_out(assignment: Assignment, wanting: Mapping[str, Sequence[str]]) -> None:
    """Move single partitions to members that have at least two fewer, until there is none to move."""
    moved = True
    while moved:
        moved = False
        for member in sorted(assignment, key=lambda member: -len(assignment[member])):
            for topic, index in reversed(assignment[member]):
                least = min(wanting[topic], key=lambda other: len(assignment[other]))
                if len(assignment[member]) - len(assignment[least]) > 1:
                    assignment[member].remove((topic, index))
                    assignment[least].append((topic, index))
                    moved = True
                    break


def without_moving(assignment: Assignment, subscriptions: Subscriptions) -> Assignment:
    """The first of a cooperative rebalance's two rounds: what another member still has is nobody's until given up."""
    owners = _owners(subscriptions)
    return {
        member: [partition for partition in given if owners.get(partition, member) == member]
        for member, given in assignment.items()
    }


def _owners(subscriptions: Subscriptions) -> dict[Partition, str]:
    newest = sorted(subscriptions, key=lambda member: subscriptions[member].generation)
    return {partition: member for member in newest for partition in subscriptions[member].owned}


_ASSIGNORS = {
    "range": Assignor("range", assign_range),
    "roundrobin": Assignor("roundrobin", assign_round_robin),
    "sticky": Assignor("sticky", assign_sticky),
    "cooperative-sticky": Assignor("cooperative-sticky", assign_sticky, cooperative=True),
}
ASSIGNORS = tuple(_ASSIGNORS)
