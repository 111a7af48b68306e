"""A cluster as a command sees it: its brokers, and whom to ask for what.

Requests go out to all brokers concerned before the first answer is read, and answers are read as they come. What a
broker answers for the moment only (a leader moved, a coordinator loads) is asked again within the time-out, and so is
who takes over from a broker that does not answer; what only that broker knows fails then. A cluster of which nobody
ever answered fails at once. Of the addresses that brokers advertise, none of another cluster is asked for anything.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from kafkad.errors import ErrorCode
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from kafkad.wire.schema import Request
from kctl.errors import (
    MAY_STILL_BE_DONE,
    UNAUTHORIZED,
    Disconnected,
    Exit,
    KctlError,
    OtherCluster,
    Unreachable,
    failure,
)
from kctl.reach.access import Access
from kctl.reach.connection import (
    Address,
    Connection,
    answering,
    connect_all,
    connect_first,
    is_kraft,
    only_reads,
    unreachable,
)
from kctl.reach.rounds import BACKOFF_SECONDS, Rounds
from kctl.settings import Settings

if TYPE_CHECKING:
    from kafkad.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
    from kafkad.wire.messages.metadata import MetadataResponseTopic

    class Topic(MetadataResponseTopic):
        """A topic in Metadata. kctl asks for topics by name, so that each has one."""

        name: str


K = TypeVar("K")
R = TypeVar("R")
V = TypeVar("V")

_LONGEST_BACKOFF_SECONDS = 1.0

GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have a coordinator."""
_KINDS = {GROUP: "group", TRANSACTION: "transactional id"}
_TOPICS = {GROUP: GROUPS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""Where coordinators keep them."""
_DESCRIBE = 1 << 8
"""Of the bits of authorized operations (KIP-430)."""
_METADATA_WITH_OPERATIONS = range(8, 11)
"""The versions that have them, as brokers answer that do not serve DescribeCluster yet."""
_NOT_TOLD = -(2**31)
"""Instead of these bits where a broker does not tell which operations are authorized."""


class Broker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class Cluster(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]


class Absent(NamedTuple):
    """Brokers that are not registered: `down` if replica lists name them, else `unknown`."""

    down: list[int]
    unknown: list[int]

    @property
    def worst(self) -> list[int]:
        """Those to tell of: a broker that never was is a mistake, one that is down may come back."""
        return self.unknown or self.down

    @property
    def state(self) -> str:
        return "does not exist, or is down and holds nothing that may be seen" if self.unknown else "is down"

    @property
    def exit_code(self) -> Exit:
        return Exit.NOT_FOUND if self.unknown else Exit.UNREACHABLE


def silent_brokers(answers: Mapping[int, object]) -> frozenset[int]:
    """The brokers that do not answer, of those that were asked something."""
    return frozenset(broker for broker, answer in answers.items() if isinstance(answer, Unreachable))


def leader_trouble(leader: int, silent: Collection[int]) -> str | None:
    """`offline` without a leader, `unreachable` behind one that does not answer; None if nothing is wrong."""
    if leader < 0:
        return "offline"
    return "unreachable" if leader in silent else None


BrokerRequest = tuple[int | None, Request[R]]
"""A broker's id (None: any) and what to ask it."""


class Session:
    def __init__(
        self,
        settings: Settings,
        access: Access,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.access = access
        self._clock = clock
        self._sleep = sleep
        self._open: dict[Address, Connection] = {}
        self._first: Connection | None = None
        self._cluster: Cluster | None = None
        """As a broker last told it; None before."""
        self._is_current = False
        """False where it has to be asked for before it is looked at again."""
        self._leaders: dict[TopicPartition, int | KctlError] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._silent: dict[int, float] = {}
        """Since when brokers have not answered: each is waited for once in a run, however many questions it has."""
        self._given_up: dict[str, set[Any]] = {}
        """What was waited for in vain, by what it is: nor is anything else waited for again and again."""
        self._holders: set[int] | None = None
        """Brokers that replica lists name; None: not looked up since the list of live brokers last changed."""
        self._news: list[Topic] = []
        """Topics as Metadata had them, whose leaders are not in `_leaders` yet."""
        self._is_refused_cluster = False
        """True once brokers have told that the cluster may not be described."""
        self._unseen: set[str] = set()
        """Topics of coordinators that may not be seen. Brokers log each refusal: none is asked for twice."""

    # --- the cluster

    @property
    def cluster(self) -> Cluster:
        if not self._is_current:
            self.metadata(())
        assert self._cluster is not None  # metadata() has set it, or raised
        return self._cluster

    @property
    def _known(self) -> list[Broker]:
        """The brokers, as one of them last told."""
        return list(self._cluster.brokers.values()) if self._cluster else []

    @property
    def _cluster_id(self) -> str | None:
        """As a broker last told it; None before, and of a cluster that has none."""
        return self._cluster.cluster_id if self._cluster else None

    def refresh(self) -> Cluster:
        """The cluster as it is now."""
        self._is_current = False
        return self.cluster

    def metadata(self, topics: Iterable[str] | None = None) -> list[Topic]:
        """These topics, or all; it creates none. Brokers and leaders are remembered."""
        from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = self.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        brokers = {node.node_id: Broker(node.node_id, node.host, node.port, node.rack) for node in response.brokers}
        cluster = Cluster(response.cluster_id, response.controller_id, dict(sorted(brokers.items())))
        if self._cluster is None or cluster.brokers != self._cluster.brokers:
            self._holders = None
        self._cluster, self._is_current = cluster, True
        found = cast("list[Topic]", response.topics)
        self._news.extend(found)
        return found

    def _learn(self) -> None:
        """The leaders of what Metadata said since the last time; many commands never ask for them."""
        for topic in self._news:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                leader = partition.leader_id
                self._leaders[where] = leader if leader >= 0 else _leaderless(where)
        self._news.clear()

    # --- one round of requests

    def call(self, request: Request[R], broker: int | None = None) -> R:
        """The answer of one broker; KctlError if there is none."""
        (answer,) = self.call_many([(broker, request)])
        if isinstance(answer, KctlError):
            raise answer
        return answer

    def call_each(self, requests: Mapping[int, Request[R]]) -> dict[int, R | KctlError]:
        """One request to each broker: its answer, or what kept it from answering."""
        answers = self.call_many(list(requests.items()))
        return dict(zip(requests, answers, strict=True))

    def call_many(self, asked: Sequence[BrokerRequest[R]]) -> list[R | KctlError]:
        """All requests out, then all answers in, in the same order; a KctlError in the place of one that failed.

        What any broker may answer is asked of another one if the first breaks off.
        """
        deadline = self._clock() + self.settings.timeout
        answers = self._call_once(asked, deadline)
        while again := [at for at, one in enumerate(asked) if one[0] is None and _may_repeat(one[1], answers[at])]:
            if self._clock() >= deadline or not self._has_others:
                break
            self._sleep(BACKOFF_SECONDS)
            for at, answer in zip(again, self._call_once([asked[at] for at in again], deadline), strict=True):
                answers[at] = answer
        if self.settings.verbose:
            self._tell(asked, answers, deadline)
        return answers

    def _call_once(self, asked: Sequence[BrokerRequest[R]], deadline: float) -> list[R | KctlError]:
        answers: list[Any] = [None] * len(asked)
        connections = self._connections([broker for broker, _ in asked], deadline)
        waiting: dict[Connection, list[int]] = {}
        for at, (broker, request) in enumerate(asked):
            connection = connections[broker]
            if isinstance(connection, KctlError):
                answers[at] = connection
                continue
            try:
                connection.send(request)
                waiting.setdefault(connection, []).append(at)
            except KctlError as error:
                answers[at] = self._lost(connection, error, request)
        while waiting:
            for connection in answering(waiting, deadline):
                for at in waiting.pop(connection):
                    try:
                        answers[at] = connection.receive(deadline)
                    except KctlError as error:
                        answers[at] = self._lost(connection, error, asked[at][1])
        return answers

    def connection(self, broker: int | None = None) -> Connection:
        """For who reads and writes frames by himself."""
        connection = self._connections([broker], self._clock() + self.settings.timeout)[broker]
        if isinstance(connection, KctlError):
            raise connection
        return connection

    def exchange(self, connection: Connection, request: Request[R], version: int | None = None) -> R:
        """One request on a connection of one's own choice, in a version of one's own choice."""
        return connection.call(request, self._clock() + self.settings.timeout, version)

    def version_of(self, request: Request[Any] | type[Request[Any]], broker: int | None = None) -> int | None:
        """The version in which a broker would be asked; None if it does not serve this API."""
        return self.connection(broker).version_of(request)

    def _connections(self, brokers: Sequence[int | None], deadline: float) -> dict[int | None, Connection | KctlError]:
        found: dict[int | None, Connection | KctlError] = {}
        missing: dict[int, Address] = {}
        asked = dict.fromkeys(brokers)
        alone = len(asked) == 1 and len(self._known) <= 1
        for broker in asked:
            if broker is None:
                found[None] = self._any(deadline, alone)
                continue
            known = self.cluster.brokers.get(broker)
            if known is None:
                found[broker] = self.no_broker([broker])
            elif connection := self._usable(known.address):
                found[broker] = connection
            else:
                missing[broker] = known.address
        if missing:
            for broker, result in self._opened(missing, deadline, alone).items():
                found[broker] = result
                if isinstance(result, Connection):
                    self._open[result.address] = result
        return found

    def connect(self, broker: int) -> Connection:
        """A connection to this broker for the caller alone, who closes it."""
        known = self.cluster.brokers.get(broker)
        if known is None:
            raise self.no_broker([broker])
        deadline = self._clock() + self.settings.timeout
        connection = self._opened({broker: known.address}, deadline, len(self._known) <= 1)[broker]
        if isinstance(connection, KctlError):
            raise connection
        return connection

    def _opened(
        self, brokers: Mapping[int, Address], deadline: float, alone: bool
    ) -> dict[int, Connection | KctlError]:
        addresses = list(brokers.values())
        opened = connect_all(addresses, self.access, deadline, alone=alone, cluster_id=self._cluster_id)
        return {
            broker: result
            if isinstance(result, Connection)
            else unreachable(broker, address, result, is_given=address in self.access.bootstrap)
            for (broker, address), result in zip(brokers.items(), opened, strict=True)
        }

    def _any(self, deadline: float, alone: bool) -> Connection:
        if self._first is not None and (connection := self._usable(self._first.address)):
            return connection
        for address in list(self._open):
            if connection := self._usable(address):
                return connection
        self._first = self._connect_any(deadline, alone)
        self._open[self._first.address] = self._first
        return self._first

    def _connect_any(self, deadline: float, alone: bool) -> Connection:
        """Nobody at all, at first, is a wrong address more often than an outage. Later kctl waits for somebody, unless
        all addresses lead to another cluster."""
        addresses = [Address(*pair) for pair in self.access.bootstrap]
        alone = alone and len(addresses) == 1
        if not self._known:
            return connect_first(addresses, self.access, deadline, alone=alone)
        advertised = {str(broker.address): broker.id for broker in self._known}
        addresses = list(dict.fromkeys([*addresses, *(broker.address for broker in self._known)]))  # any may have died
        while True:
            try:
                return connect_first(addresses, self.access, deadline, alone=alone, cluster_id=self._cluster_id)
            except OtherCluster as error:
                if (broker := advertised.get(error.address)) is None:
                    raise
                raise error.advertised_by(broker) from error
            except KctlError as error:
                if error.exit_code is not Exit.UNREACHABLE or self._clock() >= deadline:
                    raise
            self._sleep(BACKOFF_SECONDS)

    @property
    def _has_others(self) -> bool:
        """True if another broker may be asked. A single address that never answered is a wrong one, not an outage."""
        return bool(self._known) or len(self.access.bootstrap) > 1

    def _usable(self, address: Address) -> Connection | None:
        connection = self._open.get(address)
        if connection is not None and connection.is_stale():
            connection.close()
            del self._open[address]
            return None
        return connection

    def _lost(self, connection: Connection, error: KctlError, request: Request[R]) -> KctlError:
        if isinstance(error, Disconnected):
            self._open.pop(connection.address, None)
            if error.in_doubt and not _changes_nothing(request):
                error.hints = (MAY_STILL_BE_DONE, *error.hints)
        return error

    def absent(self, brokers: Iterable[int]) -> Absent:
        """Those of these brokers that are not registered. KctlError if nobody tells what they hold."""
        away = sorted(set(brokers) - set(self.cluster.brokers))
        if not away:
            return Absent([], [])
        if self._holders is None:
            held = (partition.replica_nodes for topic in self.metadata() for partition in topic.partitions)
            self._holders = set(chain.from_iterable(held))
        down = [broker for broker in away if broker in self._holders]
        return Absent(down, [broker for broker in away if broker not in self._holders])

    def no_broker(self, brokers: Collection[int]) -> Disconnected:
        """The error for brokers of which some are not registered."""
        try:
            absent = self.absent(brokers)
        except KctlError as error:
            away = sorted(set(brokers) - set(self.cluster.brokers))
            what = f"broker {', '.join(map(str, away))} is not registered, and it is not known why: {error.what}"
            return Disconnected(what, exit_code=error.exit_code, hints=error.hints)
        what = f"broker {', '.join(map(str, absent.worst))} {absent.state}"
        return Disconnected(what, exit_code=absent.exit_code, hints=(self.existing_brokers,))

    @property
    def existing_brokers(self) -> str:
        """A hint."""
        return f"existing brokers: {', '.join(map(str, self.cluster.brokers)) or 'none'}"

    def _tell(self, asked: Sequence[BrokerRequest[R]], answers: Sequence[R | KctlError], deadline: float) -> None:
        spent = (self._clock() - deadline + self.settings.timeout) * 1000
        for (broker, request), answer in zip(asked, answers, strict=True):
            whom = "any broker" if broker is None else f"broker {broker}"
            end = f": {answer.what}" if isinstance(answer, KctlError) else ""
            print(f"{type(request).__name__} to {whom}, {spent:.1f} ms{end}", file=sys.stderr)

    # --- who is responsible

    @property
    def controller(self) -> int | None:
        """The broker to send changes of the cluster to. None: to any, which passes them on in KRaft; as the controller
        each answer names a live broker there, by chance."""
        controller = self.cluster.controller_id
        if controller not in self.cluster.brokers or is_kraft(self.connection().versions):
            return None
        return controller

    def ask_controller(self, request: Request[R], codes: Callable[[R], Iterable[int]]) -> R:
        """Sends a request that changes the cluster to its controller."""
        deadline = self._clock() + self.settings.timeout
        while True:
            controller = self.controller
            if controller is None:
                (answer,) = self.call_many([(None, request)])
            else:
                (answer,) = self._call_noting_silence({controller: request}).values()
            is_over = self._clock() >= deadline
            if isinstance(answer, KctlError):
                if is_over or not _may_repeat(request, answer):
                    raise answer
            elif ErrorCode.NOT_CONTROLLER not in codes(answer) or is_over:
                return answer
            self._sleep(BACKOFF_SECONDS)
            self.refresh()
            if isinstance(answer, KctlError) and self._is_waited_for_in_vain(controller):
                raise answer

    def _is_waited_for_in_vain(self, controller: int | None) -> bool:
        """True if this broker has not answered for long, and no other is known to be the controller instead."""
        return controller is not None and not self._is_worth_waiting_for(controller) and self.controller == controller

    def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        build: Callable[[list[TopicPartition]], Request[R]],
        read: Callable[[R], Iterable[tuple[TopicPartition, int, V]]],
        instead: int | None = None,
    ) -> dict[TopicPartition, V | KctlError]:
        """Each partition's part of the answer of its leader, or of this broker instead."""

        def find(asked: list[TopicPartition]) -> Mapping[TopicPartition, int | KctlError]:
            return self._leaders_of(asked) if instead is None else dict.fromkeys(asked, instead)

        return self._ask("partition", partitions, find, build, read)

    def ask_coordinators(
        self,
        keys: Iterable[str],
        build: Callable[[list[str]], Request[R]],
        read: Callable[[R], Iterable[tuple[str, int, V]]],
        kind: int = GROUP,
        done: Collection[int] = (),
    ) -> dict[str, V | KctlError]:
        """Each group's (or transactional id's) part of the answer of its coordinator. `done`: the codes that, when the
        first answer was lost, mean that it was a success."""
        return self._ask(_KINDS[kind], keys, lambda asked: self.coordinators(asked, kind), build, read, done)

    def _ask(
        self,
        name: str,
        keys: Iterable[K],
        find: Callable[[list[K]], Mapping[K, int | KctlError]],
        build: Callable[[list[K]], Request[R]],
        read: Callable[[R], Iterable[tuple[K, int, V]]],
        done: Collection[int] = (),
    ) -> dict[K, V | KctlError]:
        seconds = BACKOFF_SECONDS

        def pause() -> None:
            nonlocal seconds
            self._sleep(seconds)
            seconds = min(2 * seconds, _LONGEST_BACKOFF_SECONDS)
            self._leaders.clear()
            self._coordinators.clear()
            self._news.clear()
            self._is_current = False

        given_up = self._given_up.setdefault(name, set())
        rounds = Rounds(name, find, build, read, self.settings.timeout, self._is_worth_waiting_for, given_up, done)
        return rounds.run(keys, self._call_noting_silence, self._clock, pause)

    def _call_noting_silence(self, requests: Mapping[int, Request[R]]) -> dict[int, R | KctlError]:
        begin = self._clock()
        answers = self.call_each(requests)
        for broker, answer in answers.items():
            if isinstance(answer, Disconnected):
                self._silent.setdefault(broker, begin)
            else:
                self._silent.pop(broker, None)
        return answers

    def _is_worth_waiting_for(self, broker: int) -> bool:
        return self._clock() - self._silent.get(broker, self._clock()) < self.settings.timeout

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | KctlError]:
        return self._leaders_of(list(partitions))

    def _leaders_of(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | KctlError]:
        self._learn()
        missing = sorted({where.topic for where in partitions if where not in self._leaders})
        if missing:
            failed = {topic.name: topic.error_code for topic in self.metadata(missing) if topic.error_code}
            self._learn()
            for where in partitions:
                if where not in self._leaders:
                    self._leaders[where] = _absent(where, failed.get(where.topic, 0))
        return {where: self._leaders[where] for where in partitions}

    def coordinators(self, keys: Iterable[str], kind: int = GROUP) -> dict[str, int | KctlError]:
        """The broker that each group or transactional id is to ask; it is remembered until it was the wrong one."""
        asked = list(keys)
        missing = [key for key in dict.fromkeys(asked) if (kind, key) not in self._coordinators]
        found = self._find_coordinators(missing, kind) if missing else {}
        self._coordinators |= {(kind, key): place for key, place in found.items() if isinstance(place, int)}
        return {key: found[key] if key in found else self._coordinators[kind, key] for key in asked}

    def _find_coordinators(self, asked: list[str], kind: int) -> dict[str, int | KctlError]:
        from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest

        version = self.version_of(FindCoordinatorRequest)
        if version is not None and version >= 4:
            answer = self.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=asked))
            return {
                each.key: _no_coordinator(kind, each.key, each) if each.error_code else each.node_id
                for each in answer.coordinators
            }
        answers = self.call_many([(None, FindCoordinatorRequest(key=key, key_type=kind)) for key in asked])
        return {
            key: a if isinstance(a, KctlError) else a.node_id if not a.error_code else _no_coordinator(kind, key, a)
            for key, a in zip(asked, answers, strict=True)
        }

    def unlisted(self, kind: int) -> list[KctlError]:
        """Why coordinators do not list all that there is of this kind: groups that may not be seen, which brokers leave
        out for who may not describe the cluster; and partitions of its topic without a leader, which nobody
        coordinates. Of transactions no broker tells whether some may not be seen."""
        if kind == GROUP and not self._may_describe_cluster:
            what = "groups that may not be seen are left out for who may not describe the cluster"
            hints = (
                "an administrator of the ACLs can allow it: acls add --allow User:NAME --cluster --operation Describe",
            )
            return [failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, what, hints=hints)]
        leaders = self._leaders_of_coordinators(_TOPICS[kind])
        away = sum(leader < 0 for leader in leaders)
        if not away:
            return []
        what = f"{away:,} of {len(leaders):,} partitions of {_TOPICS[kind]} have no leader"
        hints = ("kctl doctor says which broker or disk has them",)
        return [failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, what, hints=hints)]

    def _leaders_of_coordinators(self, topic: str) -> list[int]:
        """Of all its partitions; none where it may not be seen."""
        if topic in self._unseen:
            return []
        found = self.metadata((topic,))
        if any(told.error_code in UNAUTHORIZED for told in found):
            self._unseen.add(topic)
        return [partition.leader_id for told in found for partition in told.partitions]

    @property
    def _may_describe_cluster(self) -> bool:
        """True also where brokers do not tell. They log a refusal: after one they are asked no more."""
        if not self._is_refused_cluster:
            operations = self._asked_cluster_operations()
            self._is_refused_cluster = operations != _NOT_TOLD and not operations & _DESCRIBE
        return not self._is_refused_cluster

    def _asked_cluster_operations(self) -> int:
        from kafkad.wire.messages.describe_cluster import DescribeClusterRequest
        from kafkad.wire.messages.metadata import MetadataRequest

        if self.version_of(DescribeClusterRequest) is not None:
            cluster = self.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
            return cluster.cluster_authorized_operations
        if self.version_of(MetadataRequest) not in _METADATA_WITH_OPERATIONS:
            return _NOT_TOLD
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True)
        return self.call(asked).cluster_authorized_operations

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """True once a change can be seen, False after the time-out: brokers learn of it one after another."""
        deadline = self._clock() + self.settings.timeout
        while not condition():
            if self._clock() >= deadline:
                return False
            self._sleep(BACKOFF_SECONDS)
        return True

    @property
    def broker_timeout_ms(self) -> int:
        """The time-out given to a broker for a change: shorter than ours, so that its answer is not missed."""
        return int(self.settings.timeout * 900)

    def ask_all(self, request: Request[R]) -> list[R]:
        """The answers of all brokers that are there."""
        answers = self.call_each(dict.fromkeys(self.cluster.brokers, request)).values()
        return [answer for answer in answers if not isinstance(answer, KctlError)]

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


def _may_repeat(request: Request[R], answer: R | KctlError) -> bool:
    return isinstance(answer, Disconnected) and (not answer.in_doubt or _changes_nothing(request))


def _changes_nothing(request: Request[R]) -> bool:
    """True for what reads, and for a change that is only to be checked."""
    return only_reads(request.__schema__.key) or getattr(request, "validate_only", False)


def _leaderless(where: TopicPartition) -> KctlError:
    return failure(ErrorCode.LEADER_NOT_AVAILABLE, f'partition "{where}" has no leader')


def _absent(where: TopicPartition, code: int) -> KctlError:
    if code:
        return failure(code, f'topic "{where.topic}"')
    return failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'topic "{where.topic}" has no partition {where.partition}')


def _no_coordinator(kind: int, key: str, answer: Coordinator | FindCoordinatorResponse) -> KctlError:
    trouble = "cannot be seen" if answer.error_code in UNAUTHORIZED else "has no coordinator"
    return failure(answer.error_code, f'{_KINDS[kind]} "{key}" {trouble}', answer.error_message)


def open_session(settings: Settings) -> Session:
    from kctl.reach.access import resolve

    return Session(settings, resolve(settings, os.environ))
