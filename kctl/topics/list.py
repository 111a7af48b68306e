"""`kctl topics list`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from kafkad.names import id_text
from kctl.choosing import Choice, choosing
from kctl.command import KctlCommand, answer
from kctl.completing import topic_names
from kctl.configs.of_topics import topic_settings
from kctl.configs.values import said
from kctl.errors import KctlError
from kctl.output import Column, Document, Row, Writer, counted, note, size_text
from kctl.session import Session, pass_session
from kctl.sizes import log_dirs
from kctl.topics.chosen import chosen_topics
from kctl.topics.health import replication, topic_health

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("partitions", "How many it has.", "number"),
    Column("replication", "Replicas of each partition.", "number"),
    Column("health", "ok, or what is wrong with how many partitions.", "state"),
    Column("size_bytes", "Bytes of its records, each counted once.", "size", "SIZE"),
    Column("replicated_bytes", "Bytes on all brokers together.", "size", "REPLICATED"),
    Column("cleanup_policy", "cleanup.policy: delete, compact, or both.", header="CLEANUP", wide=True),
    Column("retention_ms", "retention.ms; -1: for ever.", machine=True),
    Column("retention", "retention.ms.", wide=True, shown=True),
    Column("min_isr", "min.insync.replicas.", "number", "MIN-ISR", wide=True),
    Column("topic_id", "The topic's id.", wide=True),
    Column("leaders", "Partitions led by each broker.", "list", wide=True),
    Column("internal", "Whether Kafka keeps its own state in it.", wide=True),
    Column("offline", "Partitions without a leader.", "number", machine=True),
    Column("under_replicated", "Partitions with fewer replicas in sync than they have.", "number", machine=True),
    Column("under_min_isr", "Partitions with fewer in sync than min.insync.replicas.", "number", machine=True),
)
_ALWAYS = ("min.insync.replicas",)
"""What health needs to know."""
_WIDE = ("cleanup.policy", "retention.ms")


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("topic", topic_names)
@click.option("--internal", is_flag=True, help="Topics of Kafka's own too.")
@click.option("--unhealthy", is_flag=True, help="Only topics with partitions in trouble.")
@click.option("--with-config", multiple=True, metavar="NAME", help="A column with this setting.")
@pass_session
def list_topics(session: Session, chosen: Choice, internal: bool, unhealthy: bool, with_config: tuple[str, ...]) -> int:
    """List topics with their health and size.

    Sizes are what the leaders' directories hold; a broker that does not answer leaves "-" for what only it knows.

    Example: kctl topics list --unhealthy
    """
    topics, errors = chosen_topics(session, chosen, internal=internal)
    sizes, silent = _sizes(session, topics if chosen else None)
    for error in silent:
        note(session.settings, f"sizes are incomplete: {error.what}")
    settings = session.settings
    is_whole = settings.output != "table" or bool(settings.columns or settings.sort)
    keys = (*_ALWAYS, *_WIDE, *with_config) if is_whole else (*_ALWAYS, *with_config)
    configs = _configs(session, topics, keys)
    rows = []
    for name, topic in topics.items():
        row = _row(topic, sizes, configs.get(name, {}), with_config)
        rows.append(row | _rest(topic, configs.get(name, {})) if is_whole else row)
    if unhealthy:
        rows = [row for row in rows if row["offline"] or row["under_replicated"] or row["under_min_isr"]]
    columns = (*COLUMNS, *(Column(name, "A setting.", header=name) for name in with_config))
    return answer(session, columns, rows, errors, text=lambda: _text(session, columns, rows))


Configs = dict[str, str | None]


def _configs(session: Session, topics: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Configs]:
    """Of each topic, as far as it can be known."""
    found = topic_settings(session, topics, keys)
    for error in found.errors[:1]:  # a topic that was deleted meanwhile, or settings that one may not see
        note(session.settings, f"settings are incomplete: {error.what}")
    values = {id(entries): {entry.name: entry.value for entry in entries} for entries in found.of.values()}
    return {name: values[id(entries)] for name, entries in found.of.items()}


Sizes = dict[str, dict[int, dict[int, int]]]
"""Topic → partition → broker → bytes."""


def _sizes(session: Session, topics: Mapping[str, Any] | None) -> tuple[Sizes, list[KctlError]]:
    asked = None
    if topics is not None:
        asked = {name: [p.partition_index for p in topic.partitions] for name, topic in topics.items()}
    directories, silent = log_dirs(session, partitions=asked)
    sizes: Sizes = {}
    for directory in directories:
        for replica in directory.replicas:
            if not replica.future:
                sizes.setdefault(replica.topic, {}).setdefault(replica.partition, {})[replica.broker] = replica.size
    return sizes, silent + [directory.error for directory in directories if directory.error]


def _row(topic: Any, sizes: Sizes, configs: Configs, extra: Sequence[str]) -> dict[str, Any]:
    """What the table shows."""
    health = topic_health(topic.partitions, _number(configs.get("min.insync.replicas")))
    own = sizes.get(topic.name, {})
    size: int | None = 0
    for partition in topic.partitions:
        led = own.get(partition.partition_index, {}).get(partition.leader_id)
        size = None if size is None or led is None else size + led
    replicated = sum(size for replicas in own.values() for size in replicas.values()) if own else None
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replication": replication(topic.partitions),
        "health": health.word,
        "size_bytes": size,
        "replicated_bytes": replicated,
        "offline": health.offline,
        "under_replicated": health.under_replicated,
        "under_min_isr": health.under_min_isr,
        **{name: configs.get(name) for name in extra},
    }


def _rest(topic: Any, configs: Configs) -> dict[str, Any]:
    """What only programs and the wide table have: a long list is quicker without it."""
    leaders = Counter(partition.leader_id for partition in topic.partitions)
    retention = configs.get("retention.ms")
    return {
        "topic_id": id_text(topic.topic_id) if any(topic.topic_id) else None,
        "leaders": [f"{broker}:{count}" for broker, count in sorted(leaders.items())],
        "internal": topic.is_internal,
        "cleanup_policy": configs.get("cleanup.policy"),
        "retention_ms": _number(retention),
        "retention": None if retention is None else said("retention.ms", retention) or f"{retention}ms",
        "min_isr": _number(configs.get("min.insync.replicas")),
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _text(session: Session, columns: Sequence[Column], rows: Sequence[Row]) -> Iterator[str]:
    settings = session.settings
    if rows:
        yield from Writer(settings, columns, Document(settings.command)).table(rows)
    if not settings.no_headers and settings.limit is None:
        yield _summary(rows)


def _summary(rows: Sequence[Row]) -> str:
    size, replicated = (sum(row[name] or 0 for row in rows) for name in ("size_bytes", "replicated_bytes"))
    partitions = sum(row["partitions"] for row in rows)
    unhealthy = sum(bool(row["offline"] or row["under_replicated"] or row["under_min_isr"]) for row in rows)
    health = f"{unhealthy} unhealthy" if unhealthy else "all healthy"
    sizes = f"{size_text(size)} ({size_text(replicated)} with replicas)"
    return f"{counted(len(rows), 'topic')}, {counted(partitions, 'partition')}, {sizes}; {health}"
