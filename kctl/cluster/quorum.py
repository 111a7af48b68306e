"""`kctl cluster quorum`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError, failure
from kctl.reach.session import Session
from kctl.texts.output import Column, Row

if TYPE_CHECKING:
    from kafkad.wire.messages.describe_quorum import ResponsePartitionData

COLUMNS = (
    Column("id", "The node's id.", "number"),
    Column("role", "leader, voter or observer."),
    Column("end_offset", "Where its log of metadata ends.", "number", "END"),
    Column("lag", "How far that is behind the leader's.", "number"),
    Column("since_fetch_ms", "How long ago it last fetched from the leader.", "duration", "FETCHED"),
    Column("since_caught_up_ms", "How long ago it had all that the leader had.", "duration", "CAUGHT-UP"),
    Column("epoch", "The leader's epoch.", "number", wide=True),
    Column("high_watermark", "Up to where a majority has it.", "number", wide=True),
)
_TOPIC = "__cluster_metadata"


@click.command("quorum", cls=KctlCommand, columns=COLUMNS, watchable=True)
@pass_session
def quorum(session: Session) -> int:
    """List the voters and observers of a KRaft quorum.

    Example: kctl cluster quorum
    """
    from kafkad.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData

    if session.version_of(DescribeQuorumRequest) is None:
        what = "the cluster has no KRaft quorum"
        raise KctlError(what, exit_code=Exit.NOT_FOUND, hints=("kctl cluster describe says where its metadata are",))
    topic = RequestTopicData(topic_name=_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
    found = session.ask_controller(DescribeQuorumRequest(topics=[topic]), lambda answer: [answer.error_code])
    if found.error_code:
        raise failure(found.error_code, "the quorum", found.error_message, changes=False)
    (partition,) = found.topics[0].partitions
    if partition.error_code:
        raise failure(partition.error_code, "the quorum", partition.error_message, changes=False)
    return answer(session, COLUMNS, rows_of(partition, int(time.time() * 1000)))


def rows_of(partition: ResponsePartitionData, now_ms: int) -> list[Row]:
    voters = [(replica, "voter") for replica in partition.current_voters]
    observers = [(replica, "observer") for replica in partition.observers]
    end = max((r.log_end_offset for r, _ in voters if r.replica_id == partition.leader_id), default=None)
    return [
        {
            "id": replica.replica_id,
            "role": "leader" if replica.replica_id == partition.leader_id else role,
            "end_offset": replica.log_end_offset,
            "lag": None if end is None else max(end - replica.log_end_offset, 0),
            "since_fetch_ms": _since(replica.last_fetch_timestamp, now_ms),
            "since_caught_up_ms": _since(replica.last_caught_up_timestamp, now_ms),
            "epoch": partition.leader_epoch,
            "high_watermark": partition.high_watermark,
        }
        for replica, role in [*voters, *observers]
    ]


def _since(timestamp: int, now_ms: int) -> int | None:
    """Clocks of machines differ by a little."""
    return None if timestamp < 0 else max(now_ms - timestamp, 0)
