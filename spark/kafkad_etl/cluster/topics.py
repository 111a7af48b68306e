"""A job's topics in the cluster: those it reads and those it writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad_etl.cluster.clusters import servers
from kafkad_etl.cluster.rights import grant
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import topics_text
from kafkad_etl.job import Create, Source
from kctl.errors import KctlError, code_name, did_you_mean

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataRequest
    from kctl.reach.session import Session

READ, WRITE = 3, 4
"""ACL operations, by their bit in Metadata responses."""
DELIVERY = (WRITE, READ)
"""Operations on a topic that is written exactly once: its name stands in the group's offset."""
_NAMES = {READ: "Read", WRITE: "Write"}
_NOT_TOLD = -0x80000000
_NO_ID = bytes(16)

Absence: TypeAlias = Literal["deleted", "hidden"]
"""Why a topic is not there any more: it was deleted, and perhaps made again, or may not be seen, if it is there."""


class Topic(NamedTuple):
    name: str
    partitions: tuple[int, ...]
    id: str = ""
    """Hexadecimal; empty if the broker does not support topic ids."""
    operations: int = _NOT_TOLD
    """A bit for each permitted operation, if the broker reports them."""

    def allows(self, operation: int) -> bool:
        return self.operations == _NOT_TOLD or bool(self.operations >> operation & 1)


def sources(session: Session, source: Source) -> dict[str, Topic]:
    """The topics that the job reads, all of which exist and are readable."""
    if source.pattern:
        names = matching(source.pattern, _all_names(session), servers(session.access))
    else:
        names = list(source.topics or source.partitions)
    key = "source.topics.{place}" if source.topics else "source.partitions.{name}"
    return readable(session, names, key)


def readable(session: Session, names: Sequence[str], key: str = "") -> dict[str, Topic]:
    """The topics, all of which exist and may be read. `key` is where a job file has them."""
    found = {}
    for place, (name, topic) in enumerate(find(session, names).items()):
        where = key.format(place=place, name=name)
        if topic is None:
            raise missing(session, name, where)
        _need(session, topic, (READ,), where)
        found[name] = topic
    return found


def partitions_of(source: Source, topics: dict[str, Topic]) -> list[TopicPartition]:
    found = []
    for topic in topics.values():
        asked = source.partitions.get(topic.name, topic.partitions) if source.partitions else topic.partitions
        for partition in asked:
            if partition not in topic.partitions:
                last = len(topic.partitions) - 1
                raise EtlError(
                    f'topic "{topic.name}" has no partition {partition}',
                    EtlExit.CLUSTER,
                    key=f"source.partitions.{topic.name}",
                    hints=(f"it has partitions 0-{last}" if last else "it has only partition 0",),
                )
            found.append(TopicPartition(topic.name, partition))
    return sorted(found)


def matching(pattern: str, names: Iterable[str], host: str) -> list[str]:
    """Topics whose full name matches. Java's and Python's regular expressions agree on what topic names need."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise EtlError(
            f'"{pattern}" is not a regular expression: {error}',
            EtlExit.USAGE,
            key="source.pattern",
            hints=("for all topics that begin with orders-: orders-.*",),
        ) from None
    names = sorted(names)
    found = [name for name in names if expression.fullmatch(name)]
    if not found:
        close = did_you_mean(pattern, names)
        text = f'no topic on {host} matches "{pattern}"'
        raise EtlError(text, EtlExit.CLUSTER, hints=close, key="source.pattern")
    return found


def java_pattern(pattern: str) -> str:
    """The pattern anchored at both ends, since Spark matches anywhere in the name."""
    return f"^(?:{pattern})$"


def _all_names(session: Session) -> list[str]:
    """All topics but internal ones, which Spark never reads by a pattern."""
    return [topic.name for topic in session.metadata() if not topic.error_code and not topic.is_internal]


def find(session: Session, names: Sequence[str], operations: Sequence[int] = (READ,)) -> dict[str, Topic | None]:
    """Topics by name, None for those that do not exist. Raises EtlError if they may not be described, as whoever has
    the right to one of `operations` may."""
    found = {answer.name: _topic(session, answer, operations) for answer in _described(session, names)}
    return {name: found[name] for name in names}


def _topic(session: Session, answer: Any, operations: Sequence[int]) -> Topic | None:
    name, code = answer.name, answer.error_code
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise hidden(session, [name], operations)
    if code:
        raise EtlError(f'topic "{name}" on {servers(session.access)}: {code_name(code)}', EtlExit.CLUSTER)
    partitions = tuple(sorted(partition.partition_index for partition in answer.partitions))
    identity = "" if answer.topic_id == _NO_ID else answer.topic_id.hex()
    return Topic(name, partitions, identity, answer.topic_authorized_operations)


def absent(session: Session, ids: Mapping[str, str]) -> dict[str, Absence]:
    """Which of the topics, given with their ids (empty: any), are not there any more, and why. All brokers that answer
    have to say so: one that was cut off or has just started does not know them all."""
    answer = _metadata(session, list(ids))
    found = _absences(answer, ids)
    brokers = [broker.node_id for broker in answer.brokers] if found else []
    for each in session.call_each(dict.fromkeys(brokers, _asking(found))).values():
        if not isinstance(each, KctlError):
            found = _agreed(found, _absences(each, ids))
    return found


def _absences(answer: Any, ids: Mapping[str, str]) -> dict[str, Absence]:
    """Nothing while the cluster has no controller, because then nobody knows."""
    if answer.controller_id < 0 or not answer.brokers:
        return {}
    found = {topic.name: _absence(topic, ids[topic.name]) for topic in answer.topics}
    return {name: why for name, why in found.items() if why}


def _agreed(one: Mapping[str, Absence], other: Mapping[str, Absence]) -> dict[str, Absence]:
    """Who may not see a topic is not told whether it is there."""
    return {name: "hidden" if "hidden" in (one[name], other[name]) else one[name] for name in one if name in other}


def _absence(answer: Any, identity: str) -> Absence | None:
    if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return "hidden"
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "deleted"
    is_another = not answer.error_code and identity and answer.topic_id.hex() != identity
    return "deleted" if is_another else None


def _described(session: Session, names: Sequence[str]) -> list[Any]:
    topics: list[Any] = _metadata(session, names).topics
    return topics


def _metadata(session: Session, names: Sequence[str]) -> Any:
    from kafkad.wire.messages.metadata import MetadataRequest

    served = session.version_of(MetadataRequest) or 0
    return session.call(_asking(names, operations=served >= 8))


def _asking(names: Iterable[str], *, operations: bool = False) -> MetadataRequest:
    from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations,
    )


def missing(session: Session, name: str, key: str) -> EtlError:
    try:
        known = _all_names(session)
    except KctlError:  # only its suggestion is lost
        known = []
    what = f"topic '{name}' does not exist on {servers(session.access)}"
    hints = did_you_mean(name, known)
    if key.startswith("sink"):
        hints = (*hints, "sink.topic.create: {partitions: 6} lets the run create it")
    return EtlError(what, EtlExit.CLUSTER, hints=hints, key=key)


def writable(
    session: Session, name: str, key: str, create: Create | None, operations: Sequence[int] = (WRITE,)
) -> Topic | None:
    """The topic, which allows these operations, or None if the run has to create it and may."""
    topic = find(session, [name], operations)[name]
    if topic is None and create is None:
        raise missing(session, name, key)
    if topic is not None:
        _need(session, topic, operations, key)
    return topic


def create_topic(session: Session, name: str, create: Create) -> None:
    from kafkad_etl.cluster.clusters import texts
    from kctl.topics.create import read_back, request
    from kctl.topics.wanted import Wanted

    replication = create.replication if create.replication > 0 else None
    wanted = Wanted(name, create.partitions, replication, texts(create.config))
    refused = request(session, [wanted], validate_only=False)
    if error := refused.get(name):
        if error.code == "TOPIC_ALREADY_EXISTS":
            return  # somebody was faster
        raise EtlError(f"sink.topic.create: {error.what}", EtlExit.CLUSTER, hints=error.hints)
    read_back(session, [name])


def _need(session: Session, topic: Topic, operations: Sequence[int], key: str) -> None:
    denied = [operation for operation in operations if not topic.allows(operation)]
    if denied:
        what = " and to ".join(_NAMES[operation].lower() for operation in denied)
        raise _denied(session, f'not authorised to {what} topic "{topic.name}"', [topic.name], denied, key)


def hidden(session: Session, names: Sequence[str], operations: Sequence[int] = (READ,)) -> EtlError:
    """The error for topics that may not be seen, as whoever has the right to one of `operations` may."""
    return _denied(session, f"not authorised to see {_quoted(names)}", names, operations)


def lost_sight(session: Session, names: Sequence[str]) -> EtlError:
    """The error for topics of a checkpoint that may not be seen any more, if they are there."""
    error = _denied(session, unseen(names), names, (READ,))
    hint = "if it is gone, a run with that right says so; --accept-data-loss then goes on without it"
    return EtlError(error.what, EtlExit.CLUSTER, hints=(*error.hints, hint))


def unseen(names: Sequence[str]) -> str:
    """Of topics that have been seen before. Brokers say the same of those that are there and those that are not."""
    return f"{_quoted(names)} cannot be seen any more: deleted, or not authorised"


def _quoted(names: Sequence[str]) -> str:
    return topics_text([f'"{name}"' for name in names])


def _denied(session: Session, what: str, topics: Sequence[str], operations: Sequence[int], key: str = "") -> EtlError:
    wanted = product(topics, operations)
    hints = [grant(session.access, _NAMES[operation], "topic", topic) for topic, operation in wanted]
    return EtlError(what, EtlExit.CLUSTER, key=key, hints=hints)
