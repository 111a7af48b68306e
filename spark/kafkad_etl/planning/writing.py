"""What a job writes to: topics that are there, or that a run has to create first, and places that are no topics."""

from __future__ import annotations

from kafkad_etl.cluster import topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.facts import dead_letter_topics
from kafkad_etl.job import Job
from kafkad_etl.messages import Client
from kafkad_etl.planning import places
from kafkad_etl.planning.planned import Creation


def look(clusters: Clusters, job: Job) -> list[Creation]:
    """Topics that a run has to create first; EtlError for those that nobody will, and for other places of rows."""
    for fault in places.faults(job):
        raise fault
    for name in dead_letter_topics(job):
        need_letters(clusters, job, name)
    return creations(clusters, job)


def creations(clusters: Clusters, job: Job) -> list[Creation]:
    sink = job.sink.topic
    if sink is None:
        return []
    kafka = sink.kafka or job.kafka
    there = topics.writable(clusters.session(kafka), sink.topic, "sink.topic", sink.create)
    return [Creation(kafka, sink.topic, sink.create)] if there is None and sink.create is not None else []


def need_letters(clusters: Clusters, job: Job, name: str) -> None:
    topics.writable(clusters.session(job.kafka), name, "value.bad_rows.topic", None)


def letters_client(clusters: Clusters, job: Job) -> Client:
    return clusters.client(job.kafka, f"etl-{job.name}") if dead_letter_topics(job) else {}


def sink_client(clusters: Clusters, job: Job) -> Client:
    sink = job.sink.topic
    if sink is None:
        return {}
    return clusters.client(sink.kafka or job.kafka, f"etl-{job.name}", options={"acks": sink.acks, **sink.options})
