"""Groups with how far behind they are, in as few rounds of requests as there can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice, all_unknown
from kctl.errors import Exit, KctlError
from kctl.groups.committed import Commits, committed
from kctl.groups.group import (
    CLASSIC,
    DEAD,
    EMPTY,
    NEW,
    SHARE,
    Group,
    Listed,
    as_listed,
    described_groups,
    listed_groups,
    no_commits,
)
from kctl.groups.markers import Span, only_markers
from kctl.groups.partition_lag import UNREAD, PartitionLag, Range, partition_lags
from kctl.reach.offsets import EARLIEST, LATEST, offsets_at
from kctl.texts.output import counted, note

if TYPE_CHECKING:
    from kctl.reach.session import Session


class ChosenGroups(NamedTuple):
    """`listed` is None where names alone decided, so that nobody had to list what there is."""

    names: list[str]
    listed: dict[str, Listed] | None
    errors: list[KctlError]
    silent: Sequence[KctlError] = ()
    """Why groups may be missing from `listed`."""

    @property
    def is_one(self) -> bool:
        """True if one group was asked for, by its name."""
        return self.listed is None and len(self.names) == 1


class GroupLag(NamedTuple):
    group: Group
    commits: Commits
    lags: list[PartitionLag]

    @property
    def topics(self) -> set[str]:
        """Committed, assigned or subscribed ones."""
        return {lag.where.topic for lag in self.lags}.union(*(member.topics for member in self.group.members))


def chosen_groups(session: Session, chosen: Choice) -> ChosenGroups:
    if chosen.literal:
        return ChosenGroups(list(chosen.names), None, [])
    listed, silent = listed_groups(session)
    names, errors = chosen.of(listed, silent)
    return ChosenGroups(names, listed, errors, silent)


def every_group(session: Session) -> ChosenGroups:
    listed, silent = listed_groups(session)
    return ChosenGroups(list(listed), listed, [], silent)


def all_groups(session: Session) -> dict[str, Listed]:
    """Why some may be missing is noted."""
    listed, silent = listed_groups(session)
    note_silent(session, silent)
    return listed


def note_silent(session: Session, silent: Iterable[KctlError]) -> None:
    for error in silent:
        note(session.settings, f"the list of groups may be incomplete: {error.with_code}")


def missed_groups(session: Session, silent: Sequence[KctlError], *, decides: bool = False) -> list[KctlError]:
    """Why groups may be missing, as errors of a command that only reads. `decides`: its exit code depends on all
    groups, so each reason is an error. Otherwise a reason is one only in output for programs, and not where rights are
    missing. All others are noted."""
    errors = [
        error for error in silent if decides or not (session.settings.is_text or error.exit_code is Exit.UNAUTHORIZED)
    ]
    note_silent(session, (error for error in silent if error not in errors))
    return [error.reason_of("groups may be missing") for error in errors]


def lags_of_groups(session: Session, chosen: ChosenGroups) -> tuple[dict[str, GroupLag], list[KctlError]]:
    """Groups, commits, then the ends: in this order no lag is below zero. One that has ended since it was listed is
    left out."""
    groups, errors = known_groups(session, chosen)
    commits = dict.fromkeys(groups, Commits()) | committed(session, [g.name for g in groups.values() if g.commits])
    ranges = read_ranges(session, groups, commits)
    group_lags: dict[str, GroupLag] = {}
    empty: list[str] = []
    for name, group in groups.items():
        own = commits[name]
        if isinstance(own, KctlError):
            errors.append(own)
        elif group.state == DEAD and not own:
            if chosen.listed is None:  # else it has ended since it was listed
                empty.append(name)
        else:
            group_lags[name] = GroupLag(group, own, partition_lags(group, own, ranges))
    errors += nothing_of_all(session, empty)
    return _without_markers(session, group_lags), [*chosen.errors, *errors]


def _without_markers(session: Session, group_lags: Mapping[str, GroupLag]) -> dict[str, GroupLag]:
    """The same; where nothing but the markers of transactions is left to read, there is no lag."""
    spans = {(name, lag.where): _span(lag) for name, look in group_lags.items() for lag in look.lags if lag.lag}
    nothing = only_markers(session, spans.values())
    return {
        name: look._replace(
            lags=[lag._replace(lag=0) if spans.get((name, lag.where)) in nothing else lag for lag in look.lags]
        )
        for name, look in group_lags.items()
    }


def _span(lag: PartitionLag) -> Span:
    return Span(lag.where, lag.next or 0, lag.reach or 0)


def with_unread(session: Session, group_lags: Mapping[str, GroupLag]) -> dict[str, GroupLag]:
    """The same, and the partitions of their topics that are neither committed nor assigned."""
    there: dict[str, list[TopicPartition]] = {}
    for topic in session.metadata(sorted(set().union(*(group_lag.topics for group_lag in group_lags.values())))):
        there[topic.name] = [TopicPartition(topic.name, partition.partition_index) for partition in topic.partitions]
    found = {}
    for name, group_lag in group_lags.items():
        read = {lag.where for lag in group_lag.lags}
        unread = [
            PartitionLag(w, None, None, None, note=UNREAD) for t in group_lag.topics for w in there[t] if w not in read
        ]
        found[name] = group_lag._replace(lags=sorted([*group_lag.lags, *unread], key=lambda lag: lag.where))
    return found


def unknown_lags(group_lags: Mapping[str, GroupLag]) -> list[KctlError]:
    """One error for each reason why the ends of partitions are not known: for who decides by the lag."""
    reasons: dict[str, set[TopicPartition]] = {}
    for look in group_lags.values():
        for lag in look.lags:
            if lag.is_unknown:
                reasons.setdefault(lag.note, set()).add(lag.where)
    return [
        KctlError(f"lag is not known of {counted(len(partitions), 'partition')}: {why}", exit_code=Exit.UNREACHABLE)
        for why, partitions in reasons.items()
    ]


def note_unknown(session: Session, group_lags: Mapping[str, GroupLag]) -> None:
    """One line for who looks: what is not known is shown as "-"."""
    unknown = unknown_lags(group_lags)
    if unknown:
        note(session.settings, "; ".join(error.with_code for error in unknown))


def known_groups(session: Session, chosen: ChosenGroups) -> tuple[dict[str, Group], list[KctlError]]:
    """Described; of a group that is listed as empty there is nothing more to know."""
    known: dict[str, Group | KctlError] = {}
    listed = chosen.listed or {}
    for name in chosen.names:
        told = listed.get(name)
        if told and (told.state == EMPTY or told.type not in (CLASSIC, NEW)):
            known[name] = as_listed(told)
    asked = [name for name in chosen.names if name not in known]
    if asked:
        known |= described_groups(session, asked)
    groups = {}
    errors = []
    for name in chosen.names:
        group = known[name]
        if isinstance(group, KctlError):
            errors.append(group)
        else:
            groups[name] = group
    return groups, errors


def nothing_of(session: Session, name: str) -> KctlError:
    """Likewise, for a command that takes one name."""
    (error,) = nothing_of_all(session, [name], takes_patterns=False)
    return error


def nothing_of_all(session: Session, names: Sequence[str], *, takes_patterns: bool = True) -> list[KctlError]:
    """Of groups without commits: whether they are there at all, and if not which are called nearly so."""
    known = all_groups(session) if names else {}
    absent = [name for name in names if name not in known]
    missing = all_unknown("group", absent, lambda: list(known), takes_patterns=takes_patterns)
    return [missing.get(name) or _without_commits(known[name]) for name in names]


def _without_commits(group: Listed) -> KctlError:
    if group.type == SHARE:
        return no_commits(group)
    which = "" if group.type in (CLASSIC, NEW) else f", a {group.type} group,"
    return KctlError(f'group "{group.name}"{which} has committed nothing', exit_code=Exit.NOT_FOUND)


def read_ranges(
    session: Session, groups: Mapping[str, Group], commits: Mapping[str, Commits | KctlError]
) -> dict[TopicPartition, Range | KctlError]:
    """Of all partitions that are committed or assigned: their ends, where nothing is committed their starts, and how
    much of what there is to read is stable."""
    done: dict[TopicPartition, int] = {}
    begin: set[TopicPartition] = set()
    for name, group in groups.items():
        own = commits[name]
        if not isinstance(own, KctlError):
            assigned = {where for member in group.members for where in member.assigned}
            for where in own.keys() | assigned:
                least = own[where].offset if where in own else 0
                done[where] = min(least, done.get(where, least))
            begin |= assigned - own.keys()
    ranges = ranges_of(session, done, begin)
    behind = [where for where, there in ranges.items() if isinstance(there, Range) and done[where] < there.end]
    for where, stable in offsets_at(session, dict.fromkeys(behind, LATEST), committed=True).items():
        there = ranges[where]
        if isinstance(there, Range) and not isinstance(stable, KctlError):
            ranges[where] = there._replace(stable=min(stable.offset, there.end))  # it has grown since
    return ranges


def ranges_of(
    session: Session, partitions: Iterable[TopicPartition], begin: Iterable[TopicPartition]
) -> dict[TopicPartition, Range | KctlError]:
    """A start that was not asked for is 0."""
    asked = list(partitions)
    starts = offsets_at(session, dict.fromkeys(begin, EARLIEST))
    found: dict[TopicPartition, Range | KctlError] = {}
    for where, end in offsets_at(session, dict.fromkeys(asked, LATEST)).items():
        start = starts.get(where)
        if isinstance(end, KctlError):
            found[where] = end
        elif isinstance(start, KctlError):
            found[where] = start
        else:
            found[where] = Range(start.offset if start else 0, end.offset)
    return found
