"""Resolves what a job writes to: existing topics, topics to create first, and other sinks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from kafkad_etl.cluster import rights, topics
from kafkad_etl.cluster.clusters import Clusters, servers
from kafkad_etl.cluster.topics import Topic
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import dead_letter_topics, delivery_name
from kafkad_etl.job import Job, TopicSink
from kafkad_etl.messages import Client, Plan
from kafkad_etl.planning import places
from kafkad_etl.planning.planned import TopicCreation
from kafkad_etl.planning.source import Source
from kctl.configs.of_topics import topic_settings
from kctl.reach.session import Session

PARTITION = "_partition"
_LARGEST, _LIMIT = "max.request.size", "max.message.bytes"
_CLIENTS_LARGEST = 1 << 20
"""Kafka's default for the client."""


class Target(NamedTuple):
    """The topic that rows are written to."""

    partitions: int = 0
    """Number of partitions it has or will have; 0 if rows go elsewhere."""
    creations: tuple[TopicCreation, ...] = ()
    """Topics that the run must create first."""


def checked_target(clusters: Clusters, job: Job, read: Source) -> Target:
    """The checked target. Raises EtlError for missing topics, too few partitions, or any other sink that cannot be
    written."""
    for fault in places.faults(job):
        raise fault
    for name in dead_letter_topics(job):
        need_letters(clusters, job, name)
    return target(clusters, job, read)


def target(clusters: Clusters, job: Job, read: Source) -> Target:
    sink = job.sink.topic
    if sink is None:
        return Target()
    kafka = sink.kafka or job.kafka
    if sink.delivery == "exactly-once":
        need_transactions(clusters.session(kafka), sink.topic, servers(clusters.access(kafka)))
    there = target_topic(clusters.session(kafka), sink)
    if there is not None:
        found = Target(len(there.partitions))
    else:
        assert sink.create is not None  # else it would have to be there
        found = Target(sink.create.partitions, (TopicCreation(kafka, sink.topic, sink.create),))
    need_partitions(job, read, found.partitions, servers(clusters.access(kafka)), created=there is None)
    return found


def target_topic(session: Session, sink: TopicSink) -> Topic | None:
    """The sink's topic, or None if the run has to create it and may."""
    operations = topics.DELIVERY if sink.delivery == "exactly-once" else (topics.WRITE,)
    return topics.writable(session, sink.topic, "sink.topic", sink.create, operations)


def need_transactions(session: Session, topic: str, host: str) -> None:
    """Raises EtlError CLUSTER if the cluster does not serve all requests of transactions with offsets."""
    from kafkad.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
    from kafkad.wire.messages.end_txn import EndTxnRequest
    from kafkad.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

    asked = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest)
    missing = [each.__name__.removesuffix("Request") for each in asked if session.version_of(each) is None]
    if missing:
        raise EtlError(
            f'the cluster of topic "{topic}", {host}, has no transactions: it does not serve {", ".join(missing)}',
            EtlExit.CLUSTER,
            key="sink.topic.delivery",
            hints=("delivery: at-least-once, with source_header: true for readers that detect duplicates",),
        )


def need_delivery(clusters: Clusters, plan: Plan) -> None:
    """Raises EtlError CLUSTER if the run writes a topic exactly once, and its user lacks a right for that."""
    sink, name = plan.job.sink.topic, plan.job.name
    if sink is not None and sink.delivery == "exactly-once":
        session = clusters.session(sink.kafka or plan.job.kafka)
        rights.need_delivery(session, delivery_name(name, plan.checkpoint_id), delivery_name(name))


def need_partitions(job: Job, read: Source, there: int, host: str, *, created: bool) -> None:
    """Raises EtlError CLUSTER if rows keep their partition number and the target lacks some of those partitions."""
    sink = job.sink.topic
    if sink is None or not sink.partition or not any(each.partition >= there for each in read.there):
        return
    from kafkad_etl.model.sql.origins import origin

    if origin(job, sink.partition).lower() != PARTITION:
        return  # which partitions rows will name is for the driver to see
    last = max(read.there, key=lambda each: each.partition)
    raise EtlError(
        f'rows keep their partition: "{last.topic}" has {_these(last.partition + 1)}, '
        f'but topic "{sink.topic}" on {host} {"would have" if created else "has"} {_these(there)}',
        EtlExit.CLUSTER,
        key="sink.topic.partition",
        hints=(
            f"sink.topic.create.partitions: {last.partition + 1}"
            if created
            else f"kctl -b {host} topics add-partitions {sink.topic} -p {last.partition + 1}",
            "or remove sink.topic.partition, so that the record's key decides",
        ),
    )


def _these(partitions: int) -> str:
    return f"partitions 0-{partitions - 1}" if partitions > 1 else "partition 0 only"


def need_letters(clusters: Clusters, job: Job, name: str) -> None:
    topics.writable(clusters.session(job.kafka), name, "value.bad_rows.topic", None)


def letters_client(clusters: Clusters, job: Job) -> Client:
    """Lets records be as large as the topic takes; Kafka's client by itself sends none of more than a megabyte."""
    names = dead_letter_topics(job)
    if not names:
        return {}
    return {_LARGEST: str(_largest(clusters, job, names))} | clusters.client(job.kafka, f"etl-{job.name}")


def _largest(clusters: Clusters, job: Job, names: Sequence[str]) -> int:
    """The topics' limit, which is of compressed batches, if it may be seen; not less than Kafka's client takes."""
    seen = chain(*topic_settings(clusters.session(job.kafka), names, [_LIMIT]).of.values())
    return max([_CLIENTS_LARGEST, *(int(each.value) for each in seen if each.name == _LIMIT and each.value)])


def sink_client(clusters: Clusters, job: Job) -> Client:
    sink = job.sink.topic
    if sink is None:
        return {}
    return clusters.client(sink.kafka or job.kafka, f"etl-{job.name}", options={"acks": sink.acks, **sink.options})
