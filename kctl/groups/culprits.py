"""Suspects of holding up a rebalance, as far as they can be known from outside. Pure.

While a classic group waits for its members to join again, its coordinator tells who they are, but not which of them
have joined. The members of the last generation are in `__consumer_offsets`: whoever is not among them can only be
there because it joined. Of the others those that still commit have not; the rest are suspects. Groups of KIP-848 say
themselves how far each member has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.groups.group import NEW, Group, Member
from kctl.groups.history import History, LastGeneration, LastMember

WAITING, SUSPECT, WORKING, JOINED, READY, BEHIND, GONE, UNKNOWN = (
    "waiting", "suspect", "working", "joined", "ready", "behind", "gone", "unknown",
)  # fmt: skip
PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"


class Judged(NamedTuple):
    """One member. `held` is what it had in the last generation; KIP-848: what it has."""

    member: Member
    status: str
    why: str = ""
    held: tuple[TopicPartition, ...] = ()
    last_commit_ms: int | None = None


def judge(group: Group, history: History, advancing: Set[TopicPartition] = frozenset()) -> list[Judged]:
    """`advancing` are partitions of which a commit came in while somebody looked."""
    if group.type == NEW:
        return [_judge_new(group, member, history) for member in group.members]
    last = history.generation
    before = {member.id: member for member in last.members} if last else {}
    found = []
    for member in group.members:
        held = before[member.id].assigned if member.id in before else member.assigned
        status, why = _status(group, member, before, history, advancing)
        found.append(Judged(member, status, why, held, _last_commit(held, history)))
    if group.state == PREPARING:
        there = {member.id for member in group.members}
        found += [_gone(member, history) for member in before.values() if member.id not in there]
    return found


def _status(
    group: Group,
    member: Member,
    before: Mapping[str, LastMember],
    history: History,
    advancing: Set[TopicPartition],
) -> tuple[str, str]:
    if group.state == COMPLETING:
        return JOINED, "waits for the assignment of the group's leader"
    if group.state != PREPARING:
        return READY, ""
    if history.problem:
        return UNKNOWN, history.problem
    if member.id not in before:
        return WAITING, "joined, and waits for the others"
    if not advancing.isdisjoint(before[member.id].assigned):
        return WORKING, "still commits: it has not joined yet"
    return SUSPECT, "has joined, or does not poll"


def _judge_new(group: Group, member: Member, history: History) -> Judged:
    commit = _last_commit(member.assigned, history)
    target = set(member.target or ())
    if member.epoch == group.epoch and target == set(member.assigned):
        return Judged(member, READY, "", member.assigned, commit)
    late = f"epoch {member.epoch} of {group.epoch}"
    surplus, missing = len(set(member.assigned) - target), len(target - set(member.assigned))
    if surplus:
        return Judged(member, BEHIND, f"{late}, has {surplus} to give up", member.assigned, commit)
    why = f"{late}, waits for {missing}" if missing else late
    return Judged(member, WAITING if missing else BEHIND, why, member.assigned, commit)


def _gone(member: LastMember, history: History) -> Judged:
    left = Member(member.id, member.instance, member.client, member.host)
    return Judged(left, GONE, "was removed, or left", member.assigned, _last_commit(member.assigned, history))


def _last_commit(held: Iterable[TopicPartition], history: History) -> int | None:
    return max((history.commit_ms[where] for where in held if where in history.commit_ms), default=None)


def longest_wait_ms(generation: LastGeneration | None) -> int | None:
    """After which the coordinator goes on without those that have not joined: the largest of their timeouts."""
    return max((member.rebalance_timeout_ms for member in generation.members), default=None) if generation else None


def suspects(judged: Sequence[Judged]) -> list[Judged]:
    """In the order in which to try them: the longest without a commit first."""
    found = [one for one in judged if one.status in (SUSPECT, WORKING, BEHIND)]
    return sorted(found, key=lambda one: (one.status == WORKING, one.last_commit_ms or 0, one.member.id))


class Fate(NamedTuple):
    """A member before and after a rebalance: `now` is the same member, perhaps under another id."""

    before: Member | None
    now: Member | None
    removed: bool

    @property
    def word(self) -> str:
        if self.before is None:
            return "new"
        if not self.removed:
            return "stayed" if self.now else "left"
        return "returned" if self.now else "did not return"


def fates(before: Sequence[Member], removed: Set[str], after: Sequence[Member]) -> list[Fate]:
    """A client that was removed comes back under a new id, known by its instance, or by its name and host."""
    now = {member.id: member for member in after}
    known = {member.id for member in before}
    came = [member for member in after if member.id not in known]
    found = []
    for member in before:
        same = now.get(member.id)
        if same is None or member.id in removed:
            same = same or next((one for one in came if _who(one) == _who(member)), None)
            if same in came:
                came.remove(same)
        found.append(Fate(member, same, member.id in removed))
    return found + [Fate(None, member, False) for member in came]


def _who(member: Member) -> tuple[str | None, str, str]:
    return (member.instance, "", "") if member.instance else (None, member.client, member.host)
