"""`kctl topics create`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kafkad.errors import ErrorCode
from kctl.command.changes import Change
from kctl.command.choosing import unknown
from kctl.command.cluster_names import topic_names
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_session
from kctl.configs.resources import Resource, described
from kctl.configs.values import misspelt
from kctl.errors import Exit, KctlError, failure
from kctl.partitions.requests import moves_as_far_as_known
from kctl.reach.session import Session
from kctl.texts.documents import read_yaml
from kctl.texts.output import Column, Document, Row, Writer, note
from kctl.texts.parsing import LARGEST_INT16, LARGEST_INT32
from kctl.texts.spelling import command, spelled
from kctl.texts.text_files import text_of
from kctl.topics.health import replication
from kctl.topics.wanted import (
    Wanted,
    check_name,
    differences,
    fixed_placement,
    from_document,
    own_settings,
    parse_configs,
    parse_placement,
)

if TYPE_CHECKING:
    from kafkad.wire.messages.create_topics import CreateTopicsResponse
    from kafkad.wire.messages.metadata import MetadataResponseTopic

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("partitions", "How many it has; null: as many as the broker gives by default.", "number"),
    Column("replication", "Replicas of each partition; null: as the broker gives by default.", "number"),
    Column("configs", "Settings of its own.", "list"),
    Column("result", "What became of it: created, or exists."),
    Column("placement", "The brokers of each partition, the preferred leader first.", machine=True),
)
PLACEMENT_COLUMNS = (
    Column("topic", ""),
    Column("partition", "", "number", "PART"),
    Column("replicas", "", "list"),
    Column("racks", "", "list"),
)


@click.command("create", cls=KctlCommand, columns=COLUMNS)
@click.argument("names", nargs=-1, metavar="TOPIC…")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1, LARGEST_INT32),
    metavar="N",
    help="Number of partitions.  [default: the broker's]",
)
@click.option(
    "-r",
    "--replication",
    type=click.IntRange(1, LARGEST_INT16),
    metavar="N",
    help="Replication factor.  [default: the broker's]",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A topic setting, as in retention.ms=7d; repeatable.",
)
@click.option("--replicas", metavar="0=1,2;1=2,3", help="The brokers of each partition, the preferred leader first.")
@click.option(
    "--fixed-start",
    is_flag=True,
    help="Put replica j of partition i on broker i+j, instead of starting at a random broker.",
)
@click.option(
    "--like",
    metavar="TOPIC",
    shell_complete=topic_names,
    help="Take partitions, replication and settings from this topic unless given.",
)
@click.option("--if-not-exists", is_flag=True, help="Accept a topic that already exists as asked for.")
@click.option(
    "-f",
    "--file",
    shell_complete=files,
    metavar="FILE",
    help="Create the topics in this YAML file: name, partitions, replication, configs.",
)
@pass_session
def create(
    session: Session,
    names: tuple[str, ...],
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
    replicas: str | None,
    fixed_start: bool,
    like: str | None,
    if_not_exists: bool,
    file: str | None,
) -> int:
    """Create topics.

    Names, settings, units and brokers are checked by kctl, then by the broker, before anything is created; afterwards
    the replica placement is printed. With --if-not-exists, a topic that already exists must match what is asked for.

    Example: kctl topics create orders -p 6 -r 3 --config retention.ms=7d
    """
    placement = parse_placement(replicas) if replicas else None
    if placement and (partitions or replication or fixed_start):
        what = "--replicas already gives the numbers of partitions and replicas"
        raise KctlError(what, exit_code=Exit.USAGE, hints=("leave out -p, -r and --fixed-start",))
    given = Wanted("", partitions, replication, parse_configs(configs), placement)
    wanted = [given._replace(name=name) for name in names]
    if file:
        wanted += [_over(topic, given) for topic in _read(file)]
    if not wanted:
        raise KctlError("no topic is named", exit_code=Exit.USAGE, hints=("name topics, or a file with -f",))
    wanted, wrong = _with_a_name(wanted)
    if like:
        model = model_of(session, like)
        wanted = [_over(topic, model) for topic in wanted]
    if fixed_start:
        wanted = [_fixed(session, topic) for topic in wanted]
    return create_topics(session, wanted, wrong, if_not_exists=if_not_exists)


def _with_a_name(wanted: Sequence[Wanted]) -> tuple[list[Wanted], list[KctlError]]:
    """Those that can be called so; KctlError if none can."""
    named, errors = [], []
    for topic in wanted:
        try:
            check_name(topic.name)
            named.append(topic)
        except KctlError as error:
            errors.append(error)
    if not named:
        raise errors[0]
    return named, errors


def _read(file: str) -> list[Wanted]:
    import sys

    try:
        document = read_yaml(sys.stdin.read() if file == "-" else text_of(file))
    except ValueError as error:
        raise KctlError(f"{file} is not YAML: {error}", exit_code=Exit.USAGE) from None
    return from_document(document, file)


def _over(topic: Wanted, base: Wanted) -> Wanted:
    """`topic`, with what it leaves open taken from `base`."""
    placed = topic.placement is not None
    return Wanted(
        topic.name,
        topic.partitions if placed else topic.partitions or base.partitions,
        topic.replication if placed else topic.replication or base.replication,
        {**base.configs, **topic.configs},
        topic.placement if placed or topic.partitions or topic.replication else base.placement,
    )


def model_of(session: Session, name: str) -> Wanted:
    """An existing topic as the model of another: all of it but the placement of its replicas."""
    (topic,) = session.metadata([name])
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown("topic", name, [topic.name for topic in session.metadata()])
    if topic.error_code:
        raise failure(topic.error_code, f'topic "{name}"')
    found, errors = described(session, [Resource("topic", name)])
    for error in errors:
        raise error
    moves = moves_as_far_as_known(session, {name: [p.partition_index for p in topic.partitions]})
    adding = {where.partition: move.adding for where, move in moves.items()}
    own = own_settings(found[Resource("topic", name)])
    return Wanted("", len(topic.partitions), replication(topic.partitions, adding), own)


def _fixed(session: Session, topic: Wanted) -> Wanted:
    if topic.placement is not None:
        return topic
    if not topic.partitions or not topic.replication:
        raise KctlError("--fixed-start needs -p and -r", exit_code=Exit.USAGE)
    check_brokers(topic, session)
    return topic._replace(placement=fixed_placement(session.cluster.brokers, topic.partitions, topic.replication))


def create_topics(
    session: Session,
    wanted: Sequence[Wanted],
    wrong: Sequence[KctlError] = (),
    *,
    if_not_exists: bool = False,
    exists_hint: str = "--if-not-exists is content if it is as asked for",
    then: Callable[[], int] | None = None,
) -> int:
    """Checks, creates those with which nothing is wrong, and reads back; what comes `then`, if all went well, has the
    last word. `exists_hint` is what to do about a topic that exists already."""
    there = _there(session, [topic.name for topic in wanted])
    unfit = (
        _conflicts(session, wanted, there) if if_not_exists else {name: _exists(name, exists_hint) for name in there}
    )
    new = [topic for topic in wanted if topic.name not in there]
    if new:
        unfit |= check(session, new)
    new = [topic for topic in new if topic.name not in unfit]
    fit = [topic for topic in wanted if topic.name not in unfit]
    rows = [row(topic, "exists" if topic.name in there else None, there.get(topic.name)) for topic in fit]
    change = Change(session, COLUMNS, rows, [*wrong, *unfit.values()])
    if not new:
        if fit:
            others = "the others" if wrong or unfit else "nothing to do: all of them"
            note(session.settings, f"{others} exist, as asked for")
        return change.done()
    if not change.confirmed(f"Create {len(new)} topic{'s' * (len(new) > 1)}?", only_adds=True):
        return change.code
    refused = request(session, new, validate_only=False)
    created = [topic for topic in new if topic.name not in refused]
    placements = read_back(session, [topic.name for topic in created])
    done = [
        row(t, "created" if t in created else "exists", placements.get(t.name))
        for t in fit
        if t not in new or t in created
    ]
    delete = command("topics delete", *(topic.name for topic in created))
    undo = spelled(session.settings, delete) if created else ""
    complete = len(placements) == len(created)
    if not complete:
        note(session.settings, "not all brokers know the new topics yet")
    if then and complete and created:
        note(session.settings, f"topic {created[0].name} is created; undo: {undo}")
        return then()
    return change.done(
        done,
        list(refused.values()),
        verified="all brokers know the topics" if complete else "",
        undo=undo,
        more=None if session.settings.quiet else lambda: _placement_lines(session, placements),
    )


Placements = dict[str, list[list[int]]]


def _there(session: Session, names: Sequence[str]) -> Placements:
    """Those that exist already."""
    return {topic.name: _placement(topic) for topic in session.metadata(names) if not topic.error_code}


def _placement(topic: MetadataResponseTopic) -> list[list[int]]:
    return [list(p.replica_nodes) for p in sorted(topic.partitions, key=lambda p: p.partition_index)]


def _exists(name: str, hint: str) -> KctlError:
    return KctlError(f'topic "{name}" exists already', code="TOPIC_ALREADY_EXISTS", hints=(hint,))


def _conflicts(session: Session, wanted: Sequence[Wanted], there: Placements) -> dict[str, KctlError]:
    both = [topic for topic in wanted if topic.name in there]
    found, errors = described(session, [Resource("topic", topic.name) for topic in both if topic.configs])
    for error in errors:
        raise error
    conflicts = {}
    for topic in both:
        configs = {entry.name: entry.value for entry in found.get(Resource("topic", topic.name), [])}
        if different := differences(topic, there[topic.name], configs):
            what = f'topic "{topic.name}" exists, but differs from what is asked for: {"; ".join(different)}'
            conflicts[topic.name] = KctlError(what, exit_code=Exit.REFUSED, code="TOPIC_ALREADY_EXISTS")
    return conflicts


def check(session: Session, wanted: Sequence[Wanted]) -> dict[str, KctlError]:
    """The errors of topics that cannot be created: those that we can see ourselves, then those of the broker."""
    unfit: dict[str, KctlError] = {}
    for topic in wanted:
        try:
            check_brokers(topic, session)
        except KctlError as error:
            unfit[topic.name] = error
    unfit |= _misspelt(session, [topic for topic in wanted if topic.name not in unfit])
    fit = [topic for topic in wanted if topic.name not in unfit]
    return unfit | (request(session, fit, validate_only=True) if fit else {})


def check_brokers(topic: Wanted, session: Session) -> None:
    """KctlError if there are too few brokers, or not those that are named."""
    there = session.cluster.brokers
    named = {broker for brokers in topic.placement or () for broker in brokers}
    if not named <= set(there):
        error = session.no_broker(named)
        what = f'topic "{topic.name}": {error.what}'
        raise KctlError(what, exit_code=error.exit_code, code="INVALID_REPLICA_ASSIGNMENT", hints=error.hints)
    replication = len(topic.placement[0]) if topic.placement else topic.replication
    if replication is not None and replication > len(there):
        there_are = "1 is" if len(there) == 1 else f"{len(there)} are"
        what = f'topic "{topic.name}": replication {replication} needs {replication} brokers, {there_are} alive'
        raise KctlError(what, code="INVALID_REPLICATION_FACTOR")


def _misspelt(session: Session, wanted: Sequence[Wanted]) -> dict[str, KctlError]:
    if not any(topic.configs for topic in wanted):
        return {}
    known = _known_configs(session, wanted[0])
    found = [(topic.name, misspelt(name, known)) for topic in wanted for name in topic.configs]
    return {name: wrong.reason_of(f'topic "{name}"') for name, wrong in found if wrong}


def _known_configs(session: Session, topic: Wanted) -> list[str]:
    """The settings that topics have, as the broker lists them for one that would be created; old brokers do not."""
    answer = _ask(session, [topic._replace(configs={})], validate_only=True)
    return [config.name for result in answer.topics for config in result.configs or []]


def _ask(session: Session, wanted: Sequence[Wanted], *, validate_only: bool) -> CreateTopicsResponse:
    from kafkad.wire.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    topics = [
        CreatableTopic(
            name=topic.name,
            num_partitions=-1 if topic.placement or not topic.partitions else topic.partitions,
            replication_factor=-1 if topic.placement or not topic.replication else topic.replication,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(topic.placement or ())
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in wanted
    ]
    asked = CreateTopicsRequest(topics=topics, timeout_ms=session.broker_timeout_ms, validate_only=validate_only)
    return session.ask_controller(asked, lambda answer: (topic.error_code for topic in answer.topics))


def request(session: Session, wanted: Sequence[Wanted], *, validate_only: bool) -> dict[str, KctlError]:
    """The topics that the broker refuses, and why."""
    answer = _ask(session, wanted, validate_only=validate_only)
    return {
        topic.name: failure(topic.error_code, f'topic "{topic.name}"', topic.error_message, changes=not validate_only)
        for topic in answer.topics
        if topic.error_code
    }


def read_back(session: Session, names: Sequence[str]) -> Placements:
    """The placement of new topics' replicas as the brokers tell it, once all of them know."""
    from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    found: Placements = {}

    def known() -> bool:
        asked = [MetadataRequestTopic(name=name) for name in names]
        answers = session.ask_all(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        for answer in answers:
            led = [t for t in answer.topics if not t.error_code and all(p.leader_id >= 0 for p in t.partitions)]
            found.update((topic.name, _placement(topic)) for topic in led if topic.name)
            if len(led) < len(names):
                return False
        return bool(answers)

    if names:
        session.wait_until(known)
    return found


def row(topic: Wanted, result: str | None, placement: Sequence[Sequence[int]] | None) -> Row:
    placed = placement or topic.placement
    return {
        "topic": topic.name,
        "partitions": len(placed) if placed else topic.partitions,
        "replication": max(map(len, placed), default=0) if placed else topic.replication,
        "configs": [f"{name}={value}" for name, value in topic.configs.items()],
        "result": result,
        "placement": [list(brokers) for brokers in placed] if placed else None,
    }


def _placement_lines(session: Session, placements: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[str]:
    brokers = session.cluster.brokers
    rows = [
        {
            "topic": name,
            "partition": index,
            "replicas": replicas,
            "racks": [brokers[b].rack or "-" if b in brokers else "-" for b in replicas],
        }
        for name, placement in placements.items()
        for index, replicas in enumerate(placement)
    ]
    columns = [
        column for column in PLACEMENT_COLUMNS if column.name != "racks" or any(b.rack for b in brokers.values())
    ]
    return Writer(session.settings, columns, Document(session.settings.command)).table(rows)
