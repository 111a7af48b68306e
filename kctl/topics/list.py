"""`kctl topics list`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkad.names import id_text
from kctl.brokers.release import caps_min_isr
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.options import names_in
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.configs.of_topics import topic_settings
from kctl.configs.values import with_unit
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.reach.log_dirs import log_dirs_of
from kctl.reach.session import Session, silent_brokers
from kctl.texts.output import Column, Document, Row, Writer, counted, known_sum_text, note
from kctl.topics.health import Needed, replication, topic_health

if TYPE_CHECKING:
    from kctl.reach.session import Topic

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
    Column("unreachable", "Partitions whose leader does not answer.", "number", machine=True),
    Column("under_replicated", "Partitions with fewer replicas in sync than they have.", "number", machine=True),
    Column(
        "under_min_isr",
        "Partitions with fewer in sync than min.insync.replicas asks for.",
        "number",
        machine=True,
    ),
)
_ALWAYS = ("min.insync.replicas",)
"""The settings that health depends on."""
_WIDE = ("cleanup.policy", "retention.ms")


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("topic", topic_names)
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
@click.option("--unhealthy", is_flag=True, help="Only topics with unhealthy partitions, internal ones too.")
@click.option("--with-config", multiple=True, metavar="NAME,…", help="Add a column with this setting.")
@pass_session
def list_topics(session: Session, chosen: Choice, internal: bool, unhealthy: bool, with_config: tuple[str, ...]) -> int:
    """List topics with their health and size.

    Sizes are those of the leaders' logs. If a broker does not answer, what only it knows is shown as "-", and the
    partitions that it leads count as unreachable.

    Example: kctl topics list --unhealthy
    """
    extra = tuple(dict.fromkeys(name for words in with_config for name in names_in(words)))
    topics, errors = chosen_topics(session, chosen, internal=internal or unhealthy)
    sizes, silent = _sizes(session, topics if chosen else None)
    for error in silent.values():
        note(session.settings, f"sizes are incomplete: {error.with_code}")
    settings = session.settings
    capped = caps_min_isr(session.connection().versions)
    is_whole = settings.output != "table" or bool(settings.columns or settings.sort)
    keys = (*_ALWAYS, *_WIDE, *extra) if is_whole else (*_ALWAYS, *extra)
    configs = _configs(session, topics, keys)
    _check_names(session, configs, extra)
    rows = []
    for name, topic in topics.items():
        row = _row(topic, sizes, configs.get(name, {}), extra, silent_brokers(silent), capped)
        rows.append(row | _rest(topic, configs.get(name, {})) if is_whole else row)
    healthy = 0
    if unhealthy:
        healthy = sum(not _is_unhealthy(row) for row in rows)
        rows = [row for row in rows if _is_unhealthy(row)]
    columns = (*COLUMNS, *(Column(name, "A setting.", header=name) for name in extra))
    return answer(session, columns, rows, errors, text=lambda: _text(session, columns, rows, healthy))


Configs = dict[str, str | None]


def _configs(session: Session, topics: Mapping[str, Topic], keys: Sequence[str]) -> dict[str, Configs]:
    """The settings of each topic, as far as they can be read."""
    found = topic_settings(session, topics, keys)
    for error in found.errors[:1]:  # a topic that was deleted meanwhile, or settings that one may not see
        note(session.settings, f"settings are incomplete: {error.with_code}")
    values = {id(entries): {entry.name: entry.value for entry in entries} for entries in found.of.values()}
    return {name: values[id(entries)] for name, entries in found.of.items()}


def _check_names(session: Session, configs: Mapping[str, Configs], names: Sequence[str]) -> None:
    """KctlError for the name of a setting that no topic has."""
    untold = [name for name in names if not any(name in own for own in configs.values())]
    if not untold or not configs:
        return
    some = next(iter(configs))
    known = [entry.name for entry in topic_settings(session, [some]).of.get(some, ())]
    for name in untold:
        if known and name not in known:
            raise KctlError(f'topics have no setting "{name}"', exit_code=Exit.USAGE, hints=did_you_mean(name, known))


Sizes = dict[str, dict[int, dict[int, int]]]
"""Topic → partition → broker → bytes."""


def _sizes(session: Session, topics: Mapping[str, Topic] | None) -> tuple[Sizes, dict[int, KctlError]]:
    """And which brokers did not tell all of them."""
    asked = None
    if topics is not None:
        asked = {name: [p.partition_index for p in topic.partitions] for name, topic in topics.items()}
    silent: dict[int, KctlError] = {}
    sizes: Sizes = {}
    for broker, own in log_dirs_of(session, session.cluster.brokers, asked).items():
        if isinstance(own, KctlError):
            silent[broker] = own
            continue
        for directory in own:
            if directory.error:
                silent[broker] = directory.error
            for replica in directory.replicas:
                if not replica.future:
                    sizes.setdefault(replica.topic, {}).setdefault(replica.partition, {})[broker] = replica.size
    return sizes, silent


def _row(
    topic: Topic, sizes: Sizes, configs: Configs, extra: Sequence[str], silent: Collection[int], capped: bool
) -> dict[str, Any]:
    """The columns of the table; `silent` are the brokers that do not answer."""
    health = topic_health(topic.partitions, Needed(_number(configs.get("min.insync.replicas")), capped), silent)
    own = sizes.get(topic.name, {})
    size: int | None = 0
    for partition in topic.partitions:
        led = own.get(partition.partition_index, {}).get(partition.leader_id)
        size = None if size is None or led is None else size + led
    held = [own.get(p.partition_index, {}).get(broker) for p in topic.partitions for broker in p.replica_nodes]
    known = [size for size in held if size is not None]
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replication": replication(topic.partitions),
        "health": health.word,
        "size_bytes": size,
        "replicated_bytes": sum(known) if len(known) == len(held) else None,
        "offline": health.offline,
        "unreachable": health.unreachable,
        "under_replicated": health.under_replicated,
        "under_min_isr": health.under_min_isr,
        **{name: configs.get(name) for name in extra},
    }


def _rest(topic: Topic, configs: Configs) -> dict[str, Any]:
    """The columns that only programs and the wide table have: without them a long list is quicker."""
    leaders = Counter(partition.leader_id for partition in topic.partitions)
    retention = configs.get("retention.ms")
    return {
        "topic_id": id_text(topic.topic_id) if any(topic.topic_id) else None,
        "leaders": [f"{broker}:{count}" for broker, count in sorted(leaders.items())],
        "internal": topic.is_internal,
        "cleanup_policy": configs.get("cleanup.policy"),
        "retention_ms": _number(retention),
        "retention": with_unit("retention.ms", retention),
        "min_isr": _number(configs.get("min.insync.replicas")),
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _text(session: Session, columns: Sequence[Column], rows: Sequence[Row], healthy: int) -> Iterator[str]:
    """`healthy` topics are left out of the rows."""
    settings = session.settings
    if rows:
        yield from Writer(settings, columns, Document(settings.command)).table(rows)
    if not settings.no_headers and settings.limit is None:
        yield _summary(rows) if rows or not healthy else f"{counted(healthy, 'topic')}, none unhealthy"


def _is_unhealthy(row: Row) -> bool:
    return bool(row["offline"] or row["unreachable"] or row["under_replicated"] or row["under_min_isr"])


def _summary(rows: Sequence[Row]) -> str:
    """Nothing is claimed of what could not be seen."""
    if not rows:
        return "0 topics: there is none, or none that may be seen"
    size, replicated = (known_sum_text(row[name] for row in rows) for name in ("size_bytes", "replicated_bytes"))
    partitions = sum(row["partitions"] for row in rows)
    unhealthy = sum(map(_is_unhealthy, rows))
    health = f"{unhealthy} unhealthy" if unhealthy else "all healthy"
    sizes = "size not known" if size == replicated == "-" else f"{size} ({replicated} with replicas)"
    return f"{counted(len(rows), 'topic')}, {counted(partitions, 'partition')}, {sizes}; {health}"
