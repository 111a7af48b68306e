"""`kctl topics delete`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kafkad.errors import ErrorCode
from kctl.command.changes import Change
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.paths import undo_dir_option
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.deleting import delete_topics
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note
from kctl.topics.details import TopicDetails, topic_details
from kctl.topics.readers import Reader, reading_of
from kctl.topics.undo_files import save_what_goes

if TYPE_CHECKING:
    from kctl.reach.session import Topic

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("partitions", "How many it has.", "number"),
    Column("size_bytes", "Bytes of its records, each counted once.", "size", "SIZE"),
    Column("records", "Offsets between start and end.", "number"),
    Column("last_write_ms", "The time of its newest record.", "time", "LAST WRITE"),
    Column("groups", "Groups that read it.", "list"),
    Column("members", "Members of these groups: consumers that would lose it.", "number"),
)
_UNKNOWN = "whether groups read them is not known"


@click.command("delete", cls=KctlCommand, columns=COLUMNS)
@choosing("topic", topic_names, required=True)
@click.option("--if-exists", is_flag=True, help="Accept that a topic does not exist.")
@click.option("--internal", is_flag=True, help="Allow internal topics: their state is lost.")
@undo_dir_option(
    "Directory for what is saved; where it is given, nothing is deleted if that fails.  [default: the current one]"
)
@pass_session
def delete(session: Session, chosen: Choice, if_exists: bool, internal: bool, undo_dir: str) -> int:
    """Delete topics with all their records.

    Shows what will be lost, then asks you to type the topic's name, or the number of topics. Nothing brings the
    records back. First saves what makes the topics again (for create -f), and committed offsets of groups (for
    reset-offsets --from-file). If that fails, as on a full disk, the topics are deleted all the same, unless --undo-dir
    was given.

    Example: kctl topics delete orders-old
    """
    topics, errors = _doomed(session, chosen, if_exists, internal)
    if not topics and not errors:
        note(session.settings, "nothing to do: there is no such topic")
    if not topics:
        return Change(session, COLUMNS, (), errors).done()
    found = topic_details(session, topics)
    for text in found.notes:
        note(session.settings, text)
    if moving := [topic.name for topic in found.topics if topic.is_moving]:
        note(session.settings, f"moves are under way, for whose end a deletion may wait: {', '.join(moving)}")
    reading = reading_of(session, topics)
    unknown = [error.reason_of(_UNKNOWN) for error in (*reading.silent, *reading.errors)]
    for error in unknown:
        note(session.settings, error.with_code)
    readers = reading.readers
    change = Change(session, COLUMNS, [_row(topic, readers.get(topic.name, [])) for topic in found.topics], errors)
    names = list(topics)
    question = f"Delete {names[0]}?" if len(names) == 1 else f"Delete {len(names)} topics?"
    if not change.confirmed(question, type_this=names[0] if len(names) == 1 else str(len(names))):
        return change.code
    reading_these = list({reader.group: reader for name in names for reader in readers.get(name, ())}.values())
    must_save = click.get_current_context().get_parameter_source("undo_dir") is not ParameterSource.DEFAULT
    with change.preparing():
        unsaved = save_what_goes(session, Path(undo_dir), found, reading_these)
    if must_save and (missing := [*unknown, *unsaved]):
        return change.given_up(missing)
    for error in unsaved:
        note(session.settings, error.with_code)
    refused = delete_topics(session, names)
    return change.done(
        errors=list(refused.values()),
        verified="no broker knows them any more",
        seen=lambda: are_gone(session, names),
    )


def _doomed(
    session: Session, chosen: Choice, if_exists: bool, internal: bool
) -> tuple[dict[str, Topic], list[KctlError]]:
    """The topics to delete, and why others that were asked for are not."""
    topics, errors = chosen_topics(session, chosen)
    if if_exists:
        errors = [error for error in errors if error.exit_code != Exit.NOT_FOUND]
    if not internal:
        errors += [_of_kafka(name) for name, topic in topics.items() if topic.is_internal]
        topics = {name: topic for name, topic in topics.items() if not topic.is_internal}
    return topics, errors


def _of_kafka(name: str) -> KctlError:
    hints = ("--internal deletes it nevertheless",)
    return KctlError(f"{name}: this is an internal topic", exit_code=Exit.REFUSED, hints=hints)


def _row(topic: TopicDetails, readers: Sequence[Reader]) -> Row:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "size_bytes": topic.size_bytes,
        "records": topic.records,
        "last_write_ms": topic.last_write,
        "groups": [reader.group for reader in readers],
        "members": sum(reader.members for reader in readers),
    }


def are_gone(session: Session, names: Sequence[str]) -> bool:
    from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    asked = [MetadataRequestTopic(name=name) for name in names]
    answers = session.ask_all(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return bool(answers) and all(topic.error_code == gone for answer in answers for topic in answer.topics)
