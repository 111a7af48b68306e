"""Groups as their coordinators describe them: classic ones, and those of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError, failure
from kctl.groups.subscriptions import CONSUMER, assigned_partitions, subscribed_topics, subscription_format
from kctl.reach.session import GROUP

if TYPE_CHECKING:
    from kafkad.wire.messages.consumer_group_describe import (
        Assignment,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
    from kafkad.wire.messages.consumer_group_describe import Member as NewMember
    from kafkad.wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
    from kctl.reach.session import Session

DEAD, EMPTY, STABLE = "Dead", "Empty", "Stable"
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
CLASSIC, NEW = "classic", "consumer"
"""Types of groups whose members are described here. Coordinators have others too, such as share and streams."""
SHARE = "share"


class Member(NamedTuple):
    id: str
    instance: str | None
    client: str
    host: str
    topics: tuple[str, ...] = ()
    """Those that it subscribed to."""
    assigned: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] | None = None
    """KIP-848: what it shall have; and the epoch it has come to."""
    epoch: int | None = None
    format: int | None = None
    """Of a classic consumer: the version in which it said what it wants. Old clients and simple ones say 0."""


class Group(NamedTuple):
    name: str
    state: str
    type: str = CLASSIC
    protocol: str = ""
    """The assignor."""
    members: tuple[Member, ...] = ()
    coordinator: int | None = None
    epoch: int | None = None
    """KIP-848: the group's."""
    protocol_type: str = CONSUMER

    @property
    def commits(self) -> bool:
        """True if it is of a type that commits offsets."""
        return self.type != SHARE

    @property
    def is_active(self) -> bool:
        """True if members may commit: then nobody else may."""
        return bool(self.members) or self.state not in (EMPTY, DEAD)


class Listed(NamedTuple):
    """A group in ListGroups; the state is empty where the broker is too old to tell."""

    name: str
    state: str
    type: str
    protocol_type: str
    coordinator: int


def listed_groups(session: Session) -> tuple[dict[str, Listed], list[KctlError]]:
    """All groups there are by name, and why some may be missing: brokers that did not say which they coordinate, and
    partitions that nobody coordinates. KctlError if no broker said it."""
    from kafkad.wire.messages.list_groups import ListGroupsRequest

    found: dict[str, Listed] = {}
    silent: list[KctlError] = []
    unlisted = session.unlisted(GROUP)
    for broker, answer in session.call_each(dict.fromkeys(session.cluster.brokers, ListGroupsRequest())).items():
        if isinstance(answer, KctlError):
            silent.append(answer)
        elif answer.error_code:
            silent.append(failure(answer.error_code, f"groups of broker {broker}"))
        else:
            for group in answer.groups:
                kind = (group.group_type or CLASSIC).lower()
                found[group.group_id] = Listed(group.group_id, group.group_state, kind, group.protocol_type, broker)
    if silent and len(silent) == len(session.cluster.brokers):
        raise silent[0]
    return dict(sorted(found.items())), silent + unlisted


def as_listed(told: Listed) -> Group:
    """What is known of a group without its members."""
    return Group(told.name, told.state, told.type, coordinator=told.coordinator, protocol_type=told.protocol_type)


def no_commits(group: Group | Listed) -> KctlError:
    """Why nothing can be done to the offsets of a share group."""
    hint = f"Kafka's kafka-share-groups.sh changes where it stands, and deletes it: --group {group.name}"
    return KctlError(
        f'group "{group.name}" is a {group.type} group, which commits no offsets',
        exit_code=Exit.REFUSED,
        hints=(hint,),
    )


def described_groups(session: Session, names: Iterable[str]) -> dict[str, Group | KctlError]:
    """Each with its members; a group that is not there is Dead, as old brokers say it.

    A coordinator answers only for groups of the type that it is asked about, and says nothing else of the others: of
    other types it is known what the list of groups says.
    """
    names = list(names)
    found: dict[str, Group | KctlError] = dict(session.ask_coordinators(names, _classic_request, _classic))
    elsewhere = [name for name, group in found.items() if isinstance(group, Group) and group.state == DEAD]
    if elsewhere and _serves_new(session):
        new = session.ask_coordinators(elsewhere, _new_request, _new)
        found |= {name: group for name, group in new.items() if isinstance(group, Group) and group.state != DEAD}
    dead = [name for name, group in found.items() if isinstance(group, Group) and group.state == DEAD]
    if dead and _has_other_types(session):
        listed, _ = listed_groups(session)
        others = [listed[name] for name in dead if name in listed and listed[name].type not in (CLASSIC, NEW)]
        found |= {each.name: as_listed(each) for each in others}
    places = session.coordinators(names)
    return {name: _placed(group, places[name]) for name, group in found.items()}


def _placed(group: Group | KctlError, place: int | KctlError) -> Group | KctlError:
    if isinstance(group, KctlError) or isinstance(place, KctlError):
        return group
    return group._replace(coordinator=place)


def _serves_new(session: Session) -> bool:
    from kafkad.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    return session.version_of(ConsumerGroupDescribeRequest) is not None


def _has_other_types(session: Session) -> bool:
    from kafkad.wire.messages.share_group_describe import ShareGroupDescribeRequest
    from kafkad.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

    return any(session.version_of(api) is not None for api in (ShareGroupDescribeRequest, StreamsGroupDescribeRequest))


def _classic_request(names: list[str]) -> DescribeGroupsRequest:
    from kafkad.wire.messages.describe_groups import DescribeGroupsRequest

    return DescribeGroupsRequest(groups=names)


def _classic(response: DescribeGroupsResponse) -> Iterator[tuple[str, int, Group]]:
    for told in response.groups:
        name = told.group_id
        if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # from v6 on; before it is Dead without an error
            yield name, 0, Group(name, DEAD)
            continue
        reads = told.protocol_type in (CONSUMER, "")
        members = tuple(_classic_member(member, reads) for member in told.members)
        yield (
            name,
            told.error_code,
            Group(name, told.group_state, CLASSIC, told.protocol_data, members, protocol_type=told.protocol_type),
        )


def _classic_member(told: DescribedGroupMember, reads: bool) -> Member:
    return Member(
        told.member_id,
        told.group_instance_id,
        told.client_id,
        told.client_host.lstrip("/"),
        subscribed_topics(told.member_metadata) if reads else (),
        assigned_partitions(told.member_assignment) if reads else (),
        format=subscription_format(told.member_metadata) if reads else None,
    )


def _new_request(names: list[str]) -> ConsumerGroupDescribeRequest:
    from kafkad.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    return ConsumerGroupDescribeRequest(group_ids=names)


_NOT_OF_THIS_TYPE = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}


def _new(response: ConsumerGroupDescribeResponse) -> Iterator[tuple[str, int, Group]]:
    for told in response.groups:
        name = told.group_id
        if told.error_code in _NOT_OF_THIS_TYPE:
            yield name, 0, Group(name, DEAD)
            continue
        members = tuple(map(_new_member, told.members))
        yield (
            name,
            told.error_code,
            Group(name, told.group_state, NEW, told.assignor_name, members, epoch=told.group_epoch),
        )


def _new_member(told: NewMember) -> Member:
    return Member(
        told.member_id,
        told.instance_id,
        told.client_id,
        told.client_host.lstrip("/"),
        (*told.subscribed_topic_names, *([told.subscribed_topic_regex] if told.subscribed_topic_regex else ())),
        _partitions(told.assignment),
        _partitions(told.target_assignment),
        told.member_epoch,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def labels(members: Iterable[Member]) -> dict[str, str]:
    """Short names for people by member id: the instance, or the client with as much of the id as tells it from the
    others. Ids are the client's name and a random number, or only the number."""
    members = list(members)
    clients: dict[str, int] = {}
    for member in members:
        clients[member.client] = clients.get(member.client, 0) + 1
    return {member.id: _label(member, clients) for member in members}


def _label(member: Member, clients: Mapping[str, int]) -> str:
    if member.instance:
        return member.instance
    if clients[member.client] == 1 and member.client:
        return member.client
    rest = member.id.removeprefix(f"{member.client}-")
    return f"{member.client}-{rest[:8]}" if member.client else rest[:8]
