"""Kafka's JSON files: reassignments (version 1), topics and partitions; parsed and written.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}

A key that Kafka's tool does not know is ignored by it; `kctl` holds the id of the cluster that a plan was made for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.texts.documents import read_json
from kctl.texts.parsing import LARGEST_INT32, whole_number

ANY = "any"
"""For a log directory: the broker chooses."""


class Place(NamedTuple):
    """The target of one partition; `log_dirs` is empty, or has one for each replica."""

    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()

    def with_directory(self, broker: int, path: str) -> Place:
        paths = dict(zip(self.replicas, self.log_dirs, strict=False)) | {broker: path}
        return Place(self.replicas, tuple(paths.get(replica, ANY) for replica in self.replicas))

    def directories(self) -> dict[int, str]:
        """The log directory of each broker for which one is named."""
        named = zip(self.replicas, self.log_dirs, strict=False)
        return {broker: directory for broker, directory in named if directory != ANY}


class Plan(NamedTuple):
    places: dict[TopicPartition, Place]
    cluster_id: str | None = None


def parse_plan(text: str, name: str) -> Plan:
    """The reassignment in a file called `name`; a KctlError names the entry that is wrong."""
    whole = _object(text, name)
    places: dict[TopicPartition, Place] = {}
    for at, entry in enumerate(_entries(whole, "partitions", name)):
        where = f'{name}: entry {at + 1} of "partitions"'
        partition = _partition(entry, where)
        if partition in places:
            _malformed(f"{where}: {partition} is there twice")
        places[partition] = _place(entry, f"{where} ({partition})")
    if not places:
        _malformed(f'{name}: "partitions" is empty')
    mine = whole.get("kctl")
    cluster_id = mine.get("cluster_id") if isinstance(mine, dict) else None
    return Plan(places, cluster_id if isinstance(cluster_id, str) else None)


def render_plan(places: Mapping[TopicPartition, Place], cluster_id: str | None = None) -> str:
    """The file, one partition a line so that people can read and compare it."""
    from json import dumps

    lines = [
        dumps(
            {"topic": topic, "partition": partition, "replicas": list(place.replicas)}
            | ({"log_dirs": list(place.log_dirs)} if place.log_dirs else {}),
            ensure_ascii=False,
        )
        for (topic, partition), place in sorted(places.items())
    ]
    mine = f',\n "kctl": {dumps({"cluster_id": cluster_id})}' if cluster_id else ""
    return '{"version": 1,\n "partitions": [\n  ' + ",\n  ".join(lines) + f"\n ]{mine}}}\n"


def parse_topics(text: str, name: str) -> list[str]:
    """The topics of a file for Kafka's --generate, or those of a reassignment."""
    whole = _object(text, name)
    key = "topics" if "topics" in whole else "partitions"
    topics: dict[str, None] = {}
    for at, entry in enumerate(_entries(whole, key, name)):
        where = f'{name}: entry {at + 1} of "{key}"'
        topic = _field(entry, "topic", str, where)
        if key == "topics" and topic in topics:
            _malformed(f"{where}: topic {topic} is there twice")
        topics[topic] = None
    if not topics:
        _malformed(f'{name}: "{key}" is empty')
    return list(topics)


def parse_partitions(text: str, name: str) -> list[TopicPartition]:
    """The partitions of a file for Kafka's leader election, or of a reassignment."""
    entries = _entries(_object(text, name), "partitions", name)
    found: dict[TopicPartition, None] = {}
    for at, entry in enumerate(entries):
        where = f'{name}: entry {at + 1} of "partitions"'
        partition = _partition(entry, where)
        if partition in found:
            _malformed(f"{where}: {partition} is there twice")
        found[partition] = None
    return list(found)


def parse_assignment(word: str) -> tuple[TopicPartition, Place]:
    """`orders:0=1,2,3`."""
    left, separator, right = word.rpartition("=")
    try:
        if not separator:
            raise ValueError
        replicas = tuple(_broker_id(broker) for broker in right.split(","))
        partition = parse_partition(left)
    except ValueError:
        hint = "write TOPIC:PARTITION=BROKER,BROKER,… as in orders:0=1,2,3"
        raise KctlError(f'"{word}" is not an assignment', exit_code=Exit.USAGE, hints=(hint,)) from None
    _check_replicas(replicas, word)
    return partition, Place(replicas)


def parse_partition(word: str) -> TopicPartition:
    """`orders:0`, and `orders-0` as Kafka prints it; a ValueError if it is neither."""
    topic, separator, number = word.rpartition(":" if ":" in word else "-")
    partition = whole_number(number, LARGEST_INT32)
    if not (separator and topic) or partition is None:
        raise ValueError(f'"{word}" is not TOPIC:PARTITION')
    return TopicPartition(topic, partition)


def _broker_id(word: str) -> int:
    broker = whole_number(word.strip(), LARGEST_INT32)
    if broker is None:
        raise ValueError(f'"{word}" is not the id of a broker')
    return broker


# --- one entry


def _place(entry: Mapping[str, Any], where: str) -> Place:
    replicas = _field(entry, "replicas", list, where)
    for broker in replicas:
        if not isinstance(broker, int) or isinstance(broker, bool) or not 0 <= broker <= LARGEST_INT32:
            _malformed(f'{where}: "replicas" has {broker!r}, which is not the id of a broker')
    _check_replicas(replicas, where)
    log_dirs = _field(entry, "log_dirs", list, where) if entry.get("log_dirs") is not None else []
    for directory in log_dirs:
        if directory != ANY and not (isinstance(directory, str) and directory.startswith("/")):
            _malformed(f'{where}: "log_dirs" has {directory!r}, which is neither an absolute path nor "any"')
    if log_dirs and len(log_dirs) != len(replicas):
        _malformed(f'{where}: "log_dirs" has {len(log_dirs)} entries for {len(replicas)} replicas')
    return Place(tuple(replicas), tuple(log_dirs))


def _check_replicas(replicas: Sequence[int], where: str) -> None:
    if not replicas:
        _malformed(f"{where}: it has no replicas")
    for at, broker in enumerate(replicas):
        if broker in replicas[:at]:
            _malformed(f"{where}: broker {broker} is among the replicas twice")


def _partition(entry: Mapping[str, Any], where: str) -> TopicPartition:
    topic = _field(entry, "topic", str, where)
    partition = _field(entry, "partition", int, where)
    if not 0 <= partition <= LARGEST_INT32:
        _malformed(f'{where}: "partition" is {partition}')
    return TopicPartition(topic, partition)


_KINDS = {str: "a string", int: "a number", list: "a list"}


def _field(entry: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    if key not in entry:
        _malformed(f'{where}: it has no "{key}"')
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        _malformed(f'{where}: "{key}" is {value!r}, which is not {_KINDS[kind]}')
    return value


# --- the file around them


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        whole = read_json(text)
    except ValueError as error:
        _malformed(f"{name} is not JSON: {error}")
    if not isinstance(whole, dict):
        _malformed(f"{name}: it is not a JSON object")
    if whole.get("version", 1) != 1:
        _malformed(f"{name}: its version is {whole['version']!r}; only version 1 is known")
    return whole


def _entries(whole: Mapping[str, Any], key: str, name: str) -> Iterable[Mapping[str, Any]]:
    entries = _field(whole, key, list, name)
    for at, entry in enumerate(entries):
        if not isinstance(entry, dict):
            _malformed(f'{name}: entry {at + 1} of "{key}" is not an object')
    return entries  # type: ignore[no-any-return]


def _malformed(what: str) -> NoReturn:
    raise KctlError(what, exit_code=Exit.USAGE)
