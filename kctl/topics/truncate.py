"""`kctl topics truncate`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_session
from kctl.configs.resources import Resource, described
from kctl.errors import Exit, KctlError
from kctl.reach.log_dirs import log_dirs, replica_sizes
from kctl.reach.offsets import EARLIEST, LATEST, OffsetAt, offsets_at
from kctl.reach.session import Session
from kctl.texts.documents import read_json
from kctl.texts.output import Column, Row, note, size_text
from kctl.texts.parsing import parse_time_ms, whole_number
from kctl.texts.scopes import not_there, parse_numbers
from kctl.texts.text_files import text_of

if TYPE_CHECKING:
    from kafkad.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("partition", "The partition.", "number", "PART"),
    Column("start_offset", "Where it begins now.", "number", "START"),
    Column("new_start_offset", "Where it will begin.", "number", "NEW START"),
    Column("end_offset", "Where it ends.", "number", "END"),
    Column("deleted_records", "Offsets that go.", "number", "DELETED"),
    Column("deleted_bytes", "About how many bytes that is; whole segments are freed.", "size", "BYTES"),
    Column("low_watermark", "Where it began afterwards, as its leader says.", "number", machine=True),
)

_POLICY = "cleanup.policy"


class Cut(NamedTuple):
    """One partition, and the offset before which everything goes."""

    where: TopicPartition
    start: int
    new_start: int
    end: int
    size: int | None

    @property
    def deleted(self) -> int:
        return self.new_start - self.start

    @property
    def deleted_bytes(self) -> int | None:
        """An estimate, as if all records were of one size."""
        records = self.end - self.start
        return None if self.size is None else self.size * self.deleted // records if records else 0


@click.command("truncate", cls=KctlCommand, columns=COLUMNS)
@choosing("topic", topic_names)
@click.option("--before", metavar="@TIME|OFFSET", help="Delete records before this time or offset.")
@click.option("--all", "everything", is_flag=True, help="Delete all records.")
@click.option("--partitions", metavar="0,3-5", help="Only these partitions.")
@click.option(
    "--offset-json-file",
    shell_complete=files,
    metavar="FILE",
    help="Partitions and offsets in the format of kafka-delete-records.",
)
@pass_session
def truncate(
    session: Session,
    chosen: Choice,
    before: str | None,
    everything: bool,
    partitions: str | None,
    offset_json_file: str | None,
) -> int:
    """Delete the oldest records, or all of them, but keep the topic.

    Shows how many records will be deleted, then asks you to type the topic's name, or the number of topics. Consumers
    that had not read them continue at the new start of the partition. An offset beyond the end of a partition is
    refused, as by Kafka's tool, and so is a topic that is only compacted.

    Example: kctl topics truncate orders --before @-7d
    """
    if (before is not None) + everything + (offset_json_file is not None) != 1:
        what = "say what to delete: --before @TIME, --before OFFSET, --all or --offset-json-file"
        raise KctlError(what, exit_code=Exit.USAGE)
    if offset_json_file is not None:
        if chosen or partitions:
            raise KctlError("the file says which topics and partitions", exit_code=Exit.USAGE)
        targets, errors = _from_file(offset_json_file), list[KctlError]()
    else:
        chosen.required()
        targets, errors = _targets(session, chosen, before, partitions)
    kept = _only_compacted(session, targets)
    cuts, unknown = _cuts(session, {where: target for where, target in targets.items() if where.topic not in kept})
    errors = [*errors, *(_never_deleted(topic) for topic in kept), *unknown]
    return _truncate(session, [cut for cut in cuts if cut.deleted > 0], cuts, errors)


def _targets(
    session: Session, chosen: Choice, before: str | None, partitions: str | None
) -> tuple[dict[TopicPartition, int], list[KctlError]]:
    """The new start of each partition (LATEST: its end), and what cannot be found out."""
    topics, errors = chosen_topics(session, chosen)
    wanted = set(parse_numbers(partitions)) if partitions else None
    for name, topic in topics.items():
        errors += not_there(name, sorted(wanted or ()), {p.partition_index for p in topic.partitions})
    asked = [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index in sorted(p.partition_index for p in topic.partitions)
        if wanted is None or index in wanted
    ]
    if before is None:
        return dict.fromkeys(asked, LATEST), errors
    if (offset := whole_number(before)) is not None:
        return dict.fromkeys(asked, offset), errors
    if not before.startswith("@"):
        raise KctlError(
            f'"{before}" is neither an offset nor @TIME', exit_code=Exit.USAGE, hints=("as in @-7d or 1200",)
        )
    when = parse_time_ms(before, int(time.time() * 1000), session.settings.utc)
    found, unknown = _known(offsets_at(session, dict.fromkeys(asked, when)))
    return {where: at.offset if at.offset >= 0 else LATEST for where, at in found.items()}, [*errors, *unknown]


def _known(
    found: Mapping[TopicPartition, OffsetAt | KctlError],
) -> tuple[dict[TopicPartition, OffsetAt], list[KctlError]]:
    known = {where: at for where, at in found.items() if not isinstance(at, KctlError)}
    return known, [at for at in found.values() if isinstance(at, KctlError)]


def _from_file(path: str) -> dict[TopicPartition, int]:
    try:
        return parse_offset_file(read_json(text_of(path)), path)
    except ValueError as error:
        raise KctlError(f"{path} is not JSON: {error}", exit_code=Exit.USAGE) from None


def parse_offset_file(document: Any, where: str) -> dict[TopicPartition, int]:
    """`{"partitions": [{"topic": "a", "partition": 0, "offset": 10}], "version": 1}`; offset -1 is the end."""
    hint = 'it is {"partitions": [{"topic": "orders", "partition": 0, "offset": 1200}], "version": 1}'
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise KctlError(f"{where} names no partitions", exit_code=Exit.USAGE, hints=(hint,))
    if document.get("version", 1) != 1:
        raise KctlError(f"{where} is of version {document['version']}, not 1", exit_code=Exit.USAGE)
    found: dict[TopicPartition, int] = {}
    for number, item in enumerate(document["partitions"], 1):
        try:
            at, offset = TopicPartition(str(item["topic"]), int(item["partition"])), int(item["offset"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise KctlError(
                f"{where}, partition {number}, is incomplete", exit_code=Exit.USAGE, hints=(hint,)
            ) from None
        if at in found or offset < -1:
            why = "is there twice" if at in found else f"has offset {offset}"
            raise KctlError(f"{where}: {at} {why}", exit_code=Exit.USAGE)
        found[at] = offset
    return found


def _only_compacted(session: Session, targets: Iterable[TopicPartition]) -> list[str]:
    """The topics of which brokers delete no records, as far as their settings may be seen."""
    topics = sorted({where.topic for where in targets})
    found, _ = described(session, [Resource("topic", topic) for topic in topics], [_POLICY])
    return [where.name for where, entries in found.items() for each in entries if each.value == "compact"]


def _never_deleted(what: object) -> KctlError:
    return KctlError(
        f"{what} is compacted: records are not deleted from the beginning where {_POLICY} lacks delete",
        exit_code=Exit.REFUSED,
        code=ErrorCode.POLICY_VIOLATION.name,
        hints=(f"kctl configs set topic/NAME {_POLICY}+=delete allows it; then retention deletes records too",),
    )


def _cuts(session: Session, targets: Mapping[TopicPartition, int]) -> tuple[list[Cut], list[KctlError]]:
    starts, errors = _known(offsets_at(session, dict.fromkeys(targets, EARLIEST)))
    ends, more = _known(offsets_at(session, dict.fromkeys(starts, LATEST)))
    targets = {where: target for where, target in targets.items() if where in ends}
    of_topics: dict[str, list[int]] = {}
    for topic, partition in targets:
        of_topics.setdefault(topic, []).append(partition)
    sizes = replica_sizes(log_dirs(session, partitions=of_topics)[0])
    leaders = session.leaders(targets)
    cuts = []
    beyond = ("an offset is given, where a time would be @TIME; --all deletes all records",)
    for where, target in targets.items():
        start, end = starts[where].offset, ends[where].offset
        if target > end:
            what = f"{where} ends at {end}, before offset {target}: nothing of it is deleted"
            more.append(KctlError(what, exit_code=Exit.REFUSED, code="OFFSET_OUT_OF_RANGE", hints=beyond))
            continue
        leader = leaders[where]
        size = None if isinstance(leader, KctlError) else sizes.get((where, leader))
        cuts.append(Cut(where, start, new_start(target, start, end), end, size))
    return cuts, [*errors, *more]


def new_start(target: int, start: int, end: int) -> int:
    return end if target == LATEST else max(target, start)


def _truncate(session: Session, cuts: list[Cut], shown: list[Cut], unable: list[KctlError]) -> int:
    change = Change(session, COLUMNS, [_row(cut) for cut in shown], unable)
    if not cuts:
        if shown:
            note(session.settings, "nothing to do: no record is before that")
        return change.done()
    topics = sorted({cut.where.topic for cut in cuts})
    size = sum(cut.deleted_bytes or 0 for cut in cuts)
    what = f"{sum(cut.deleted for cut in cuts):,} records (about {size_text(size)})"
    whose = topics[0] if len(topics) == 1 else f"{len(topics)} topics"
    if not change.confirmed(
        f"Delete {what} of {whose}?", type_this=topics[0] if len(topics) == 1 else str(len(topics))
    ):
        return change.code
    answers = _delete(session, {cut.where: cut.new_start for cut in cuts})
    errors = [answer for answer in answers.values() if isinstance(answer, KctlError)]
    done = {where: mark for where, mark in answers.items() if not isinstance(mark, KctlError)}
    now = offsets_at(session, dict.fromkeys(done, EARLIEST))
    verified = all(isinstance(at, OffsetAt) and at.offset >= done[where] for where, at in now.items())
    rows = [{**_row(cut), "low_watermark": done.get(cut.where)} for cut in shown]
    return change.done(rows, errors, verified="the partitions begin there" if verified else "")


def _delete(session: Session, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KctlError]:
    """Deletes records; returns the log start offset of each partition afterwards."""
    from kafkad.wire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    def build(partitions: list[TopicPartition]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for where in partitions:
            item = DeleteRecordsPartition(partition_index=where.partition, offset=offsets[where])
            topics.setdefault(where.topic, []).append(item)
        asked = [DeleteRecordsTopic(name=name, partitions=items) for name, items in topics.items()]
        return DeleteRecordsRequest(topics=asked, timeout_ms=session.broker_timeout_ms)

    def read(response: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int, int]]:
        for topic in response.topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                yield where, partition.error_code, partition.low_watermark

    answers = session.ask_leaders(offsets, build, read)
    return {where: _never_deleted(where) if _is_kept(answer) else answer for where, answer in answers.items()}


def _is_kept(answer: int | KctlError) -> bool:
    return isinstance(answer, KctlError) and answer.code == ErrorCode.POLICY_VIOLATION.name


def _row(cut: Cut) -> Row:
    return {
        "topic": cut.where.topic,
        "partition": cut.where.partition,
        "start_offset": cut.start,
        "new_start_offset": cut.new_start,
        "end_offset": cut.end,
        "deleted_records": cut.deleted,
        "deleted_bytes": cut.deleted_bytes,
        "low_watermark": None,
    }
