"""Checks of consumer groups. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kafkad.names import TopicPartition
from kctl.doctor.facts import (
    GROUPS,
    PROGRESS,
    RETENTION,
    SETTINGS,
    SILENT_MS,
    SOON,
    Facts,
    deletes,
    is_late,
    retention_ms,
)
from kctl.doctor.finding import Check, Finding, Severity
from kctl.doctor.topics import away
from kctl.groups.group import EMPTY, REBALANCING, labels
from kctl.groups.partition_lag import BEYOND, DELETED, by_member, total
from kctl.texts.output import counted, duration_text
from kctl.texts.spelling import command, quote

_CROWDED = 2
_FEW = 20


def rebalancing(facts: Facts) -> Iterator[Finding]:
    for name, group_lag in facts.groups.items():
        if group_lag.group.state in REBALANCING:
            members = counted(len(group_lag.group.members), "member")
            summary = f"group {name} is rebalancing ({group_lag.group.state}, {members})"
            if held_up := facts.suspects.get(name):
                summary += f"; not known to have joined: {', '.join(held_up)}"
            fix = f"kctl {command('groups rebalance', name, options='--explain')}"
            yield Finding(Severity.WARN, summary, (name,), fix, "groups are rebalancing")


def stuck(facts: Facts) -> Iterator[Finding]:
    """A member whose session lives, for its heartbeats come, and that gets nothing done."""
    for name, recent in facts.recent.items():
        group_lag = facts.groups[name]
        if recent.changed or group_lag.group.state in REBALANCING:
            continue
        names = labels(group_lag.group.members)
        assigned = by_member(group_lag.lags)
        for member in group_lag.group.members:
            held = assigned.get(member.id, [])
            late = [lag for lag in held if is_late(lag, facts.waited_for)]
            if late and recent.commits.isdisjoint(lag.where for lag in held):
                who = f"{names[member.id]} ({member.host}) of group {name}"
                summary = (
                    f"{who} has committed nothing for {SILENT_MS // 60_000} minutes or longer, with "
                    f"{counted(total(late).at_least, 'record')} to read"
                )
                move = command("groups rebalance", name, options=f"--member {quote(member.id)}")
                fix = f"kctl {command('groups describe', name)}; kctl {move}"
                items = tuple(str(lag.where) for lag in late)
                yield Finding(Severity.WARN, summary, items, fix, "members commit nothing, with records to read")


def old_clients(facts: Facts) -> Iterator[Finding]:
    """Old clients, by the only sign that brokers pass on: the format of their subscription."""
    old = tuple(
        f"{names[member.id]} ({member.host}) of {name}"
        for name, group_lag in facts.groups.items()
        for names in [labels(group_lag.group.members)]
        for member in group_lag.group.members
        if member.format == 0
    )
    if old:
        summary = (
            f"{counted(len(old), 'member')} joined as clients before Kafka 2.4 do; Kafka 4 refuses those before 2.1"
        )
        fix = "see which client it is, and whether it is maintained: some libraries of today join so too"
        yield Finding(Severity.INFO, summary, old, fix)


def lost(facts: Facts) -> Iterator[Finding]:
    """Groups whose next records are gone. A partition that nobody reads is left out: nobody misses them."""
    unread: dict[str, int] = {}
    for name, group_lag in facts.groups.items():
        gone = {
            lag.where: facts.starts[lag.where] - lag.committed
            for lag in group_lag.lags
            if lag.committed is not None and lag.where in facts.starts and lag.committed < facts.starts[lag.where]
        }
        if gone and group_lag.group.state == EMPTY:
            unread[name] = sum(gone.values())
        elif gone:
            summary = (
                f"group {name} never read {counted(sum(gone.values()), 'record')} that {_who_removed(facts, gone)}"
            )
            fix = f"kctl {command('groups describe', name)}; more retention, or faster members"
            plural = "groups never read records that are gone"
            yield Finding(Severity.ERROR, summary, tuple(map(str, gone)), fix, plural)
    if unread:
        records = counted(sum(unread.values()), "record")
        summary = f"{counted(len(unread), 'group')} without members stand before {records} that are gone"
        yield Finding(Severity.INFO, summary, tuple(unread), "kctl groups describe GROUP; kctl groups delete GROUP")


def _who_removed(facts: Facts, gone: Iterable[TopicPartition]) -> str:
    """A start that moved past what retention may delete by age or size was set: DeleteRecords, kctl topics truncate."""
    settings = [facts.topic_settings.get(where.topic) for where in gone]
    if all(own is not None and not deletes(own) for own in settings):
        return "were deleted (kctl topics truncate, kafka-delete-records): its topics have no retention"
    return "retention has removed, or somebody deleted (kctl topics truncate, kafka-delete-records)"


def overtaken(facts: Facts) -> Iterator[Finding]:
    """Retention is about to be faster than the group."""
    for name, group_lag in facts.groups.items():
        unread = {
            lag.where: max(lag.committed, facts.starts.get(lag.where, 0))
            for lag in group_lag.lags
            if lag.committed is not None
        }
        going = {
            where: facts.soon_gone[where] - first
            for where, first in unread.items()
            if first < facts.soon_gone.get(where, 0)
        }
        if going:
            kept = min(retention_ms(facts.topic_settings[where.topic]) or 0 for where in going)
            left = duration_text(int(kept * SOON))
            summary = f"group {name} has {left} at most to read {counted(sum(going.values()), 'record')}"
            fix = f"kctl {command('groups lag', name)}; more retention, or faster members"
            plural = "groups have little time left before retention removes what they have not read"
            summary += " before retention removes them"
            yield Finding(Severity.WARN, summary, tuple(map(str, going)), fix, plural)


def deserted(facts: Facts) -> Iterator[Finding]:
    names = tuple(
        name
        for name, group_lag in facts.groups.items()
        if group_lag.group.state == EMPTY and total(group_lag.lags).at_least > 0
    )
    if names:
        summary = f"{counted(len(names), 'group')} with lag and no members"
        yield Finding(Severity.INFO, summary, names, "kctl groups lag")


def deleted_topics(facts: Facts) -> Iterator[Finding]:
    names = tuple(
        name
        for name, group_lag in facts.groups.items()
        if group_lag.lags and any(lag.note == DELETED for lag in group_lag.lags)
    )
    if names:
        summary = f"{counted(len(names), 'group')} with offsets of topics that are gone"
        yield Finding(Severity.INFO, summary, names, "kctl groups delete-offsets GROUP --topic TOPIC")


def beyond_the_end(facts: Facts) -> Iterator[Finding]:
    """A consumer starts anew there, at its auto.offset.reset, or skips what comes until the end has caught up."""
    for name, group_lag in facts.groups.items():
        partitions = tuple(str(lag.where) for lag in group_lag.lags if lag.note == BEYOND)
        if partitions:
            summary = f"group {name} has committed beyond the end of {counted(len(partitions), 'partition')}"
            fix = f"kctl {command('groups describe', name)}; kctl {command('groups reset-offsets', name)}"
            yield Finding(Severity.WARN, summary, partitions, fix, "groups have committed beyond the end")


def coordinators(facts: Facts) -> Iterator[Finding]:
    """Brokers that coordinate too many groups: the coordinator follows from a hash of the group's name."""
    load = Counter(
        group_lag.group.coordinator for group_lag in facts.groups.values() if group_lag.group.coordinator is not None
    )
    alive = [broker.id for broker in facts.alive]
    if len(alive) < 2 or load.total() < _FEW * len(alive):
        return
    for broker, count in load.items():
        if count > _CROWDED * load.total() / len(alive):
            summary = f"broker {broker} coordinates {count / load.total():.0%} of the groups"
            fix = "kctl partitions elect --preferred --all" if away(facts) else ""
            yield Finding(Severity.INFO, summary, (f"broker/{broker}",), fix)


CHECKS = (
    Check("rebalancing", "Groups in a rebalance.", rebalancing, (GROUPS, PROGRESS)),
    Check("stuck", "Members that have records to read, and commit nothing.", stuck, (GROUPS, PROGRESS)),
    Check("old-clients", "Members with a client that may be too old.", old_clients, (GROUPS,)),
    Check("lost-records", "Groups whose next records are gone.", lost, (GROUPS, SETTINGS)),
    Check("overtaken", "Groups that retention is about to overtake.", overtaken, (GROUPS, SETTINGS, RETENTION)),
    Check("deserted-groups", "Groups with lag and nobody who reads.", deserted, (GROUPS,)),
    Check("deleted-topics", "Groups with offsets of topics that are gone.", deleted_topics, (GROUPS,)),
    Check("beyond-the-end", "Groups that have committed beyond the end of a partition.", beyond_the_end, (GROUPS,)),
    Check(
        "coordinators", "Brokers that coordinate far more groups than others.", coordinators, (GROUPS,), changes=True
    ),
)
