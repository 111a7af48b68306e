"""Partitions named on a command line: TOPIC, TOPIC:PARTITION, or one of Kafka's JSON files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafkad.names import TopicPartition
from kctl.command.choosing import SUGGESTED, unknown
from kctl.errors import Exit, KctlError
from kctl.partitions.cluster_model import Partition
from kctl.partitions.reassignment_json import parse_partition, parse_partitions
from kctl.texts.text_files import text_of


def is_file(word: str) -> bool:
    """No topic has a slash in its name, and few end in .json."""
    return os.path.sep in word or (word.endswith(".json") and os.path.exists(word))


def named(words: Sequence[str], partitions: Iterable[Partition]) -> tuple[list[Partition], list[KctlError]]:
    """Those of the partitions that the words name, in their order, and what is wrong with the other words."""
    there = {partition.name: partition for partition in partitions}
    topics: dict[str, list[Partition]] = {}
    for partition in there.values():
        topics.setdefault(partition.topic, []).append(partition)
    known = sorted(topics)
    found: dict[TopicPartition, Partition] = {}
    errors: list[KctlError] = []
    for word in words:
        try:
            meant = _meant(word, topics, there, known if len(errors) < SUGGESTED else ())
            found |= {partition.name: partition for partition in meant}
        except KctlError as error:
            errors.append(error)
    return sorted(found.values(), key=lambda partition: partition.name), errors


def _meant(
    word: str, topics: Mapping[str, list[Partition]], there: dict[TopicPartition, Partition], known: Sequence[str]
) -> list[Partition]:
    """`known`: the topics that are looked through for one that is called nearly so."""
    if is_file(word):
        return [_there(where, there) for where in parse_partitions(text_of(word), word)]
    return topics[word] if word in topics else [_there(_parsed(word, topics, known), there)]


def _parsed(word: str, topics: Collection[str], known: Sequence[str]) -> TopicPartition:
    try:
        where = parse_partition(word)
    except ValueError:
        raise unknown("topic", word, known) from None
    if where.topic not in topics:
        raise unknown("topic", where.topic if ":" in word else word, known)
    return where


def _there(where: TopicPartition, partitions: dict[TopicPartition, Partition]) -> Partition:
    if where not in partitions:
        what = f'topic "{where.topic}" has no partition {where.partition}'
        raise KctlError(what, exit_code=Exit.NOT_FOUND, code="UNKNOWN_TOPIC_OR_PARTITION")
    return partitions[where]
