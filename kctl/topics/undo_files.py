"""What is saved before topics are deleted: what they were, and where groups stood in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.groups.committed import Commits, committed
from kctl.groups.group import SHARE
from kctl.groups.offset_changes import undo_command
from kctl.groups.offsets_file import save_offsets
from kctl.texts.output import counted, note
from kctl.texts.spelling import quote, spelled
from kctl.texts.text_files import save_new
from kctl.topics.wanted import Wanted, file_text, own_settings

if TYPE_CHECKING:
    from kctl.reach.session import Session
    from kctl.topics.details import Found, TopicDetails
    from kctl.topics.readers import Reader


def save_what_goes(session: Session, directory: Path, found: Found, readers: Collection[Reader]) -> list[KctlError]:
    """Saves the topics, without their records, and what these groups have committed of them, each in a file; and tells
    the commands that take the files. Returns what is not saved, and why."""
    unsaved = _save_topics(session, directory, found)
    unsaved += [_no_positions(reader.group) for reader in readers if reader.type == SHARE]
    groups = [reader.group for reader in readers if reader.type != SHARE]
    try:
        commits = committed(session, groups)
    except KctlError as error:
        return [*unsaved, _no_offsets(groups, error)]
    unsaved += [_no_offsets([group], own) for group, own in commits.items() if isinstance(own, KctlError)]
    before = _offsets(commits, {topic.name for topic in found.topics})
    try:
        _save_offsets(session, directory, before)
    except KctlError as error:
        unsaved.append(_no_offsets(before, error))
    return unsaved


def _no_offsets(groups: Collection[str], error: KctlError) -> KctlError:
    return error.reason_of(f"offsets of {_named('group', groups)} are not saved")


def _no_positions(share_group: str) -> KctlError:
    hints = ("kafka-share-groups.sh --describe shows them, and --reset-offsets sets them",)
    return KctlError(f"positions of share group {share_group} are not saved: kctl cannot set them again", hints=hints)


def _save_offsets(session: Session, directory: Path, before: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    file = save_offsets(directory, before)
    if file is not None:
        back = undo_command(session.settings, before, file)
        whose = counted(len(before), "group")
        note(session.settings, f"saved offsets of {whose}, for when the records are back: {back}")


def _named(word: str, names: Collection[str]) -> str:
    return f"{word} {next(iter(names))}" if len(names) == 1 else counted(len(names), word)


def _save_topics(session: Session, directory: Path, found: Found) -> list[KctlError]:
    try:
        file = save_new(
            directory, [topic.name for topic in found.topics], "topics", ".yaml", "".join(map(_text, found.topics))
        )
    except KctlError as error:
        return [error.reason_of("what makes topics again is not saved")]
    again = spelled(session.settings, f"topics create -f {quote(str(file))}")
    note(session.settings, f"saved what makes topics again, without their records: {again}")
    without = _named("topic", [topic.name for topic in found.topics if not topic.configs])
    return [error.reason_of(f"settings of {without} are not saved") for error in found.unseen]


def _text(topic: TopicDetails) -> str:
    """Its item in the file."""
    unseen = "" if topic.configs else "# without its settings, which could not be seen\n"
    return unseen + file_text([_as_it_is(topic)])


def _as_it_is(topic: TopicDetails) -> Wanted:
    return Wanted(topic.name, len(topic.partitions), topic.replication, own_settings(topic.configs))


def _offsets(found: Mapping[str, Commits | KctlError], topics: set[str]) -> dict[str, dict[TopicPartition, int]]:
    """What each group has committed of these topics, without those that have nothing."""
    offsets = {
        group: {where: commit.offset for where, commit in commits.items() if where.topic in topics}
        for group, commits in found.items()
        if not isinstance(commits, KctlError)
    }
    return {group: of_topics for group, of_topics in offsets.items() if of_topics}
