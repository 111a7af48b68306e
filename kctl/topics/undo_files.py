"""What is saved before topics are deleted: what they were, and where groups stood in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.groups.committed import Commits, committed
from kctl.groups.offset_changes import undo_command
from kctl.groups.offsets_file import save_offsets
from kctl.texts.output import counted, note
from kctl.texts.spelling import quote, spelled
from kctl.texts.text_files import save_new
from kctl.topics.wanted import Wanted, file_text

if TYPE_CHECKING:
    from kctl.reach.session import Session
    from kctl.topics.details import TopicDetails


def save_what_goes(
    session: Session, directory: Path, topics: Sequence[TopicDetails], groups: Collection[str]
) -> list[KctlError]:
    """Saves the topics, without their records, and what these groups have committed of them, each in a file; and tells
    the commands that take the files. Returns what is not saved, and why."""
    unsaved: list[KctlError] = []
    try:
        _save_topics(session, directory, topics)
    except KctlError as error:
        unsaved.append(KctlError(f"what makes topics again is not saved: {error.what}"))
    try:
        found = committed(session, groups)
    except KctlError as error:
        return [*unsaved, _no_offsets(groups, error)]
    unsaved += [_no_offsets([group], commits) for group, commits in found.items() if isinstance(commits, KctlError)]
    before = _offsets(found, {topic.name for topic in topics})
    try:
        _save_offsets(session, directory, before)
    except KctlError as error:
        unsaved.append(_no_offsets(before, error))
    return unsaved


def _no_offsets(groups: Collection[str], error: KctlError) -> KctlError:
    return KctlError(f"offsets of {_named('group', groups)} are not saved: {error.what}")


def _save_offsets(session: Session, directory: Path, before: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    file = save_offsets(directory, before)
    if file is not None:
        back = undo_command(session.settings, before, file)
        whose = counted(len(before), "group")
        note(session.settings, f"saved offsets of {whose}, for when the records are back: {back}")


def _named(word: str, names: Collection[str]) -> str:
    return f"{word} {next(iter(names))}" if len(names) == 1 else counted(len(names), word)


def _save_topics(session: Session, directory: Path, topics: Sequence[TopicDetails]) -> None:
    names = [topic.name for topic in topics]
    file = save_new(directory, names, "topics", ".yaml", "".join(map(_text, topics)))
    again = spelled(session.settings, f"topics create -f {quote(str(file))}")
    unseen = [topic.name for topic in topics if not topic.configs]
    without = f"their records and the settings of {_named('topic', unseen)}" if unseen else "their records"
    note(session.settings, f"saved what makes topics again, without {without}: {again}")


def _text(topic: TopicDetails) -> str:
    """Its item in the file. A broker tells all settings of a topic, or none to who may not see them."""
    unseen = "" if topic.configs else "# without its settings, which could not be seen\n"
    return unseen + file_text([_as_it_is(topic)])


def _as_it_is(topic: TopicDetails) -> Wanted:
    own = {entry.name: entry.value for entry in topic.configs if entry.source == "topic" and entry.value is not None}
    return Wanted(topic.name, len(topic.partitions), topic.replication, own)


def _offsets(found: Mapping[str, Commits | KctlError], topics: set[str]) -> dict[str, dict[TopicPartition, int]]:
    """What each group has committed of these topics, without those that have nothing."""
    offsets = {
        group: {where: commit.offset for where, commit in commits.items() if where.topic in topics}
        for group, commits in found.items()
        if not isinstance(commits, KctlError)
    }
    return {group: of_topics for group, of_topics in offsets.items() if of_topics}
