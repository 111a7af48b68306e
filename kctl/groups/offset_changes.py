"""The steps shared by all changes of committed offsets: the group must be inactive, a backup is saved, and what was
done is read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError, failure
from kctl.groups.committed import Commits, committed
from kctl.groups.group import Group, described_groups, labels, no_commits
from kctl.groups.offsets_file import save_offsets
from kctl.groups.partitions_text import partitions_text
from kctl.settings import Settings
from kctl.texts.output import note
from kctl.texts.spelling import command, quote, spelled

if TYPE_CHECKING:
    from kafkad.wire.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitResponse,
    )
    from kctl.reach.session import Session

pause = time.sleep
_WAIT_SECONDS = 0.5
_NAMED = 8
"""Members that an error names."""


def active_error(group: Group, *, can_wait: bool = False, bound: str = "its offsets change") -> KctlError:
    """`bound`: what becomes of an empty group only."""
    stop = _whom(group)
    more = f" and {len(stop) - _NAMED} more" if len(stop) > _NAMED else ""
    hints = [f"stop: {' '.join(stop[:_NAMED])}{more}"] if stop else []
    if can_wait:
        hints.append("or use --wait to apply as soon as it is empty")
    count = f"with {len(stop)} member{'' if len(stop) == 1 else 's'}" if stop else "and not empty"
    return KctlError(
        f'group "{group.name}" is {group.state} {count}; {bound} only when it is empty',
        exit_code=Exit.REFUSED,
        code=ErrorCode.NON_EMPTY_GROUP.name,
        hints=hints,
    )


def _whom(group: Group) -> list[str]:
    names = labels(group.members)
    return [f"{names[member.id]}@{member.host}" for member in group.members]


def inactive(session: Session, names: Iterable[str]) -> dict[str, Group]:
    """These groups, if nobody is in any of them, and they are of types that commit offsets."""
    groups: dict[str, Group] = {}
    for name, group in described_groups(session, names).items():
        if isinstance(group, KctlError):
            raise group
        if not group.commits:
            raise no_commits(group)
        if group.is_active:
            raise active_error(group)
        groups[name] = group
    return groups


def inactive_ones(
    session: Session, names: Iterable[str], *, wait: bool = False
) -> tuple[dict[str, Group], list[KctlError]]:
    """Those of these groups that nobody is in (with `wait` as soon as that is so), and why the others are not among
    them; groups that commit no offsets never are."""
    names = list(names)
    told: set[str] = set()
    while True:
        known = described_groups(session, names)
        groups = {name: group for name, group in known.items() if not isinstance(group, KctlError)}
        active = [group for group in groups.values() if group.commits and group.is_active]
        if not (active and wait):
            errors = [group for group in known.values() if isinstance(group, KctlError)]
            errors += [no_commits(group) for group in groups.values() if not group.commits]
            errors += [active_error(group, can_wait=True) for group in active]
            able = {name: group for name, group in groups.items() if group.commits and not group.is_active}
            return able, errors
        for group in active:
            if group.name not in told:
                told.add(group.name)
                note(session.settings, f"waiting until group {group.name} is empty: {' '.join(_whom(group))}")
        pause(_WAIT_SECONDS)


def read_commits(session: Session, names: Iterable[str]) -> dict[str, Commits]:
    found: dict[str, Commits] = {}
    for name, commits in committed(session, names).items():
        if isinstance(commits, KctlError):
            raise commits
        found[name] = commits
    return found


def still_as_shown(session: Session, shown: Mapping[str, Commits]) -> None:
    """KctlError if a group has become active since, or its offsets are others now: then the preview was of something
    else."""
    inactive(session, shown)
    now = read_commits(session, shown)
    for name, before in shown.items():
        offsets = {where: commit.offset for where, commit in now[name].items()}
        if offsets != {where: commit.offset for where, commit in before.items()}:
            raise KctlError(
                f'offsets of group "{name}" have changed since they were shown; nothing was done',
                exit_code=Exit.REFUSED,
                hints=("look again, and decide anew",),
            )


def save_undo(directory: Path, before: Mapping[str, Mapping[TopicPartition, int]]) -> Path | None:
    """The offsets as they are before a change, as by save_offsets. KctlError if they cannot be saved: then nothing may
    be changed."""
    try:
        return save_offsets(directory, before)
    except KctlError as error:
        hint = "nothing was changed, for there would be no way back; --undo-dir DIR has it saved elsewhere"
        raise error.with_hint(hint) from error


class Outcome(NamedTuple):
    """Of one change, asked of one coordinator: the `errors`, and whether `nothing` of it was done for sure."""

    errors: list[KctlError]
    nothing: bool


def outcome(errors: list[KctlError], asked: int = 1) -> Outcome:
    """`asked`: how many parts the change had, each of which may have failed."""
    return Outcome(errors, sum(error.did_nothing for error in errors) >= asked)


def needed_undo(undo: str, file: Path | None, outcomes: Iterable[Outcome]) -> str:
    """The way back, which is in `file`; where nothing was done there is none, and the file goes."""
    if not all(each.nothing for each in outcomes):
        return undo
    if file is not None:
        with suppress(OSError):
            file.unlink()
    return ""


def undo_command(
    settings: Settings,
    before: Mapping[str, Mapping[TopicPartition, int]],
    file: Path | None,
    fresh: Mapping[str, Iterable[TopicPartition]] | None = None,
    created: Iterable[str] = (),
) -> str:
    """`before` is in the file; `fresh` partitions had no commit, and `created` groups none at all."""
    said = []
    if file is not None:
        named = (name for name, offsets in before.items() if offsets)
        said.append(command("groups reset-offsets", *named, options=f"--from-file {quote(str(file))}"))
    created = list(created)
    for name, wheres in (fresh or {}).items():
        topics = " ".join(f"--topic {quote(text)}" for text in partitions_text(wheres).split())
        if topics and name not in created:
            said.append(command("groups delete-offsets", name, options=topics))
    if created:
        said.append(command("groups delete", *created))
    return spelled(settings, *said)


@contextmanager
def undo_told(
    session: Session, undo: str, done: Callable[[], str] = lambda: "it may be done in part"
) -> Iterator[None]:
    """Tells the way back, if there is one, also when the work breaks off: some of it may have been done."""
    try:
        yield
    except (KeyboardInterrupt, KctlError):
        note(session.settings, f"{done()}; undo: {undo}" if undo else done())
        raise


def commit_offsets(session: Session, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> Outcome:
    """As nobody's member, which the coordinator takes only for a group without members."""
    request = _request(group, offsets, metadata)
    answer = session.ask_coordinators([group], lambda _: request, lambda r: _read(group, r))[group]
    if isinstance(answer, KctlError):
        if answer.in_doubt and _are_there(session, group, offsets):
            return Outcome([], nothing=False)
        return outcome([_became_active(group, answer) if answer.code == ErrorCode.UNKNOWN_MEMBER_ID.name else answer])
    return outcome([failure(code, f"group {group}, {where}") for where, code in answer.items() if code], len(offsets))


def _are_there(session: Session, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    try:
        return not verify(session, {group: offsets})
    except KctlError:
        return False


def _became_active(group: str, error: KctlError) -> KctlError:
    changed = (
        "its offsets may have been changed, for an answer was lost"
        if error.in_doubt
        else "none of its offsets were changed"
    )
    active = KctlError(
        f'group "{group}" has members again: {changed}',
        exit_code=Exit.REFUSED,
        code=ErrorCode.NON_EMPTY_GROUP.name,
        hints=(f"kctl {command('groups members', group)}",),
    )
    active.in_doubt = error.in_doubt
    return active


def _request(group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> OffsetCommitRequest:
    from kafkad.wire.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(one)
    listed = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return OffsetCommitRequest(group_id=group, member_id="", topics=listed)


def _read(group: str, response: OffsetCommitResponse) -> Iterator[tuple[str, int, dict[TopicPartition, int]]]:
    """The error code of each partition; an error of the whole group stands at each of them."""
    codes = {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    distinct = set(codes.values())
    yield group, distinct.pop() if len(distinct) == 1 else 0, codes


def verify(session: Session, wanted: Mapping[str, Mapping[TopicPartition, int]]) -> list[KctlError]:
    """Errors for offsets that are not as they should be when read back."""
    now = read_commits(session, wanted)
    return [
        KctlError(f"group {name}, {where}: offset {offset} was accepted, but cannot be read back")
        for name, offsets in wanted.items()
        for where, offset in offsets.items()
        if where not in now[name] or now[name][where].offset != offset
    ]
