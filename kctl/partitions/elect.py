"""`kctl partitions elect`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.partitions.cluster_model import Partition
from kctl.partitions.partition_names import named
from kctl.partitions.requests import PREFERRED, UNCLEAN, by_topic, elect_leaders
from kctl.reach.offsets import LATEST
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, counted, note

if TYPE_CHECKING:
    from kafkad.wire.messages.list_offsets import ListOffsetsRequest

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("replicas", "Its replicas, the preferred one first.", "list"),
    Column("isr", "Those in sync.", "list", header="ISR"),
    Column("leader", "Who leads it now.", "number"),
    Column("new_leader", "Who shall lead it.", "number", header="NEW"),
    Column("survivors", "Unclean: where the logs of the replicas that are left end. What is after that is lost."),
    Column("result", "What is to be done, or was."),
)
_DEBUGGING_REPLICA = -2
"""The replica id with which any replica, and not the leader alone, tells where its log ends."""


class Election(NamedTuple):
    """`new` is None if there is nothing to elect, and `why` then says why."""

    partition: Partition
    isr: tuple[int, ...]
    new: int | None
    why: str


def preferred(partition: Partition, isr: tuple[int, ...], alive: Iterable[int]) -> Election:
    """The election of the first replica, and its result if it were held."""
    first = partition.replicas[0]
    if partition.leader == first:
        return Election(partition, isr, None, "leads already")
    if first not in set(alive):
        return Election(partition, isr, None, f"cannot: broker {first} is down")
    if first not in isr:
        return Election(partition, isr, None, f"cannot: broker {first} is not in sync")
    return Election(partition, isr, first, "elect")


def unclean(partition: Partition, isr: tuple[int, ...], alive: Iterable[int]) -> Election:
    """The election of any living replica, and its result; only a partition without a leader can have one."""
    if partition.leader is not None:
        return Election(partition, isr, None, "has a leader")
    there = set(alive)
    in_sync = next((broker for broker in partition.replicas if broker in there and broker in isr), None)
    new = in_sync if in_sync is not None else next((b for b in partition.replicas if b in there), None)
    if new is None:
        return Election(partition, isr, None, "cannot: every replica is down")
    return Election(partition, isr, new, "elect" if new == in_sync else "elect, losing records")


@click.command("elect", cls=KctlCommand, columns=COLUMNS)
@click.argument("what", nargs=-1, metavar="[TOPIC[:PARTITION]… | FILE.JSON]", shell_complete=topic_names)
@click.option("--all", "everything", is_flag=True, help="All partitions of the cluster.")
@click.option(
    "--preferred", "kind", flag_value="preferred", default="preferred", help="Elect the first replica.  [default]"
)
@click.option(
    "--unclean", "kind", flag_value="unclean", help="Elect any remaining replica of partitions without a leader."
)
@pass_session
def elect(session: Session, what: Sequence[str], everything: bool, kind: str) -> int:
    """Elect preferred leaders, or any leader at all.

    A preferred election returns leadership to the first replica if it is in sync; no record is lost. An unclean
    election is for partitions whose in-sync replicas are all gone: records that the others had not copied are lost for
    good.

    Example: kctl partitions elect --preferred --all
    """
    if everything == bool(what):
        raise KctlError("name topics or partitions, or use --all", exit_code=Exit.USAGE)
    decide = preferred if kind == "preferred" else unclean
    states = _states(session, None)
    unknown: list[KctlError] = []
    if everything:
        chosen = sorted(each for each, _ in states.values())
    else:
        chosen, unknown = named(what, _partitions(states))
    elections = [decide(each, states[each.name][1], session.cluster.brokers) for each in chosen]
    wanted = [each for each in elections if each.new is not None]
    rows = _rows(session, wanted if everything else elections, kind)
    impossible = [_impossible(each) for each in elections if each.why.startswith("cannot")]
    change = Change(session, COLUMNS, rows, [*unknown, *impossible])
    if not wanted and elections:
        note(session.settings, _nothing(elections, kind))
    if not wanted:
        return change.done()
    if not _confirmed(change, wanted, kind):
        return change.code
    refused = elect_leaders(session, [e.partition.name for e in wanted], PREFERRED if kind == "preferred" else UNCLEAN)
    elected = [each for each in wanted if each.partition.name not in refused]
    leaders, gone = new_leaders(session, elected)
    done = [_result(row, leaders, refused) for row in rows]
    unseen = [_unseen(each.partition.name, gone) for each in elected if each.partition.name not in leaders]
    return change.done(done, [*refused.values(), *unseen], verified=counted(len(leaders), "new leader"))


def _unseen(name: TopicPartition, gone: Collection[TopicPartition]) -> KctlError:
    if name in gone:
        return KctlError(f"{name} was deleted meanwhile", exit_code=Exit.NOT_FOUND)
    return KctlError(f"{name} has no new leader yet", exit_code=Exit.UNREACHABLE)


def _confirmed(change: Change, wanted: Sequence[Election], kind: str) -> bool:
    if kind == "preferred":
        return change.confirmed(f"Elect {len(wanted)} leaders?")
    topics = {each.partition.topic for each in wanted}
    typed = topics.pop() if len(topics) == 1 else str(len(wanted))
    return change.confirmed(
        f"Records after these ends are lost for good. Elect {len(wanted)} leaders?", type_this=typed
    )


def _nothing(elections: Sequence[Election], kind: str) -> str:
    if kind == "preferred":
        led = sum(each.why == "leads already" for each in elections)
        return f"{led} of {len(elections)} partitions are led by their first replica already; nothing to elect"
    return "no partition without a leader can elect one; nothing to elect"


def _impossible(each: Election) -> KctlError:
    code = "PREFERRED_LEADER_NOT_AVAILABLE" if each.partition.leader is not None else "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    return KctlError(f"partition {each.partition.name}: {each.why.removeprefix('cannot: ')}", code=code)


States = Mapping[TopicPartition, tuple[Partition, tuple[int, ...]]]


def _states(session: Session, topics: Iterable[str] | None) -> States:
    """Each partition with its in-sync replicas."""
    return {
        TopicPartition(topic.name, each.partition_index): (
            Partition(
                topic.name,
                each.partition_index,
                tuple(each.replica_nodes),
                each.leader_id if each.leader_id >= 0 else None,
            ),
            tuple(each.isr_nodes),
        )
        for topic in session.metadata(topics)
        if not topic.error_code
        for each in topic.partitions
    }


def _partitions(states: States) -> list[Partition]:
    return [partition for partition, _ in states.values()]


def _rows(session: Session, elections: Sequence[Election], kind: str) -> list[Row]:
    ends = _ends(session, elections) if kind == "unclean" else {}
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "replicas": list(each.partition.replicas),
            "isr": list(each.isr),
            "leader": each.partition.leader,
            "new_leader": each.new if each.new is not None else each.partition.leader,
            "survivors": ", ".join(f"{b} ends at {end}" for b, end in ends.get(each.partition.name, {}).items())
            or None,
            "result": each.why,
        }
        for each in elections
    ]


def _ends(session: Session, elections: Sequence[Election]) -> dict[TopicPartition, dict[int, int]]:
    """The log ends of the living replicas, for partitions that can elect one of them."""
    held: dict[int, list[TopicPartition]] = {}
    for each in elections:
        for broker in each.partition.replicas if each.new is not None else ():
            if broker in session.cluster.brokers:
                held.setdefault(broker, []).append(each.partition.name)
    answers = session.call_each({broker: _ends_request(partitions) for broker, partitions in held.items()})
    ends: dict[TopicPartition, dict[int, int]] = {}
    for broker, answer in answers.items():
        for topic in () if isinstance(answer, KctlError) else answer.topics:
            for found in topic.partitions:
                if not found.error_code:
                    ends.setdefault(TopicPartition(topic.name, found.partition_index), {})[broker] = found.offset
    return ends


def _ends_request(partitions: Iterable[TopicPartition]) -> ListOffsetsRequest:
    from kafkad.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in numbers],
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    return ListOffsetsRequest(replica_id=_DEBUGGING_REPLICA, topics=topics)


def new_leaders(
    session: Session, wanted: Sequence[Election]
) -> tuple[dict[TopicPartition, int], Collection[TopicPartition]]:
    """Read back: who leads now, and what is gone; brokers hear of it one after another. Who was elected counts once it
    is seen again: one that refuses is replaced at once."""
    topics = sorted({each.partition.topic for each in wanted})
    changed: dict[TopicPartition, int] = {}
    gone: set[TopicPartition] = set()

    def have_changed() -> bool:
        states, before = _states(session, topics), dict(changed)
        changed.clear()
        gone.clear()
        for each in wanted:
            name = each.partition.name
            if name not in states:
                gone.add(name)
                continue
            leader = states[name][0].leader
            if leader is not None and leader != each.partition.leader:
                changed[name] = leader
        return changed == before and changed.keys() | gone == {each.partition.name for each in wanted}

    if wanted:
        session.wait_until(have_changed)
    return changed, gone


def _result(row: Row, leaders: Mapping[TopicPartition, int], refused: Mapping[TopicPartition, KctlError]) -> Row:
    where = TopicPartition(row["topic"], row["partition"])
    if where in leaders:
        return {**row, "new_leader": leaders[where], "result": "elected"}
    return {**row, "result": "refused"} if where in refused else row
