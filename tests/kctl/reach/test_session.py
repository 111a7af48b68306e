"""Whom a session asks, and what becomes of those who do not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.messages.create_topics import CreateTopicsRequest
from kafkad.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkad.wire.messages.find_coordinator import Coordinator
from kafkad.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.errors import MAY_STILL_BE_DONE, Disconnected, Exit, KctlError, OtherCluster, failure
from kctl.reach import session as sessions
from kctl.reach.access import Access
from kctl.reach.connection import (
    Address,
    Connection,
    unreachable,
)
from kctl.reach.offsets import LATEST, offsets_at
from kctl.reach.rounds import Rounds
from kctl.reach.session import GROUP, TRANSACTION, Absent, Session, _no_coordinator, silent_brokers
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import session_of
from tests.kctl.flaky import API_VERSIONS, CREATE_TOPICS, DESCRIBE_QUORUM, METADATA, Flaky


@pytest.fixture
def session(broker: KafkadProcess) -> Iterator[Session]:
    session = Session(Settings(), Access(bootstrap=(("127.0.0.1", broker.port),)))
    yield session
    session.close()


class Cluster:
    """Brokers that answer each key as told, round by round."""

    def __init__(self, *rounds: dict[str, int | KctlError]) -> None:
        self.rounds = list(rounds)
        self.now = 0.0
        self.asked: list[list[str]] = []

    def call_each(self, requests: dict[int, list[str]]) -> dict[int, object]:
        answers = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        self.asked.append(sorted(key for keys in requests.values() for key in keys))
        found: dict[int, object] = {}
        for broker, keys in requests.items():
            broken = next((answers[key] for key in keys if isinstance(answers[key], KctlError)), None)
            found[broker] = broken or [(key, answers[key], f"{key}@{broker}") for key in keys]
        return found

    def pause(self) -> None:
        self.now += 1

    def run(
        self,
        places: dict[str, int | KctlError],
        timeout: float = 3,
        given_up: set[str] | None = None,
        done: tuple[int, ...] = (),
    ) -> dict[str, str | KctlError]:
        rounds: Rounds[str, str] = Rounds(
            "group",
            lambda keys: {key: places[key] for key in keys},
            list,
            lambda answer: answer,
            timeout,
            given_up=given_up,
            done=done,
        )
        return rounds.run(places, self.call_each, lambda: self.now, self.pause)


def test_keys_of_several_brokers_in_one_round() -> None:
    cluster = Cluster({"a": 0, "b": 0, "c": 0})
    assert cluster.run({"a": 1, "b": 2, "c": 1}) == {"a": "a@1", "b": "b@2", "c": "c@1"}
    assert cluster.asked == [["a", "b", "c"]]


def test_what_moved_is_asked_again_and_only_that() -> None:
    cluster = Cluster({"a": 0, "b": ErrorCode.NOT_COORDINATOR}, {"b": 0})
    assert cluster.run({"a": 1, "b": 1}) == {"a": "a@1", "b": "b@1"}
    assert cluster.asked == [["a", "b"], ["b"]]


def test_what_a_lost_answer_may_have_done_is_not_denied() -> None:
    lost = Disconnected("broke off", in_doubt=True)
    gone = ErrorCode.GROUP_ID_NOT_FOUND
    assert Cluster({"a": lost}, {"a": gone}).run({"a": 1}, done=(gone,)) == {"a": "a@1"}
    never = Cluster({"a": gone}).run({"a": 1}, done=(gone,))["a"]
    assert isinstance(never, KctlError)
    assert (never.code, never.in_doubt) == (gone.name, False)
    refused = Cluster({"a": lost}, {"a": ErrorCode.UNKNOWN_MEMBER_ID}).run({"a": 1})["a"]
    assert isinstance(refused, KctlError)
    assert (refused.code, refused.in_doubt) == ("UNKNOWN_MEMBER_ID", True)


def test_all_of_the_time_is_given_only_where_no_other_may_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def connect_all(
        addresses: list[Address], access: Access, deadline: float, *, alone: bool, cluster_id: str | None
    ) -> list[KctlError]:
        told.append(alone)
        return [Disconnected("no answer") for _ in addresses]

    def connect_first(
        addresses: list[Address], access: Access, deadline: float, *, alone: bool, cluster_id: str | None
    ) -> Connection:
        told.append(alone)
        return Connection(idle, Address("h", 1), "me")

    monkeypatch.setattr(sessions, "connect_all", connect_all)
    monkeypatch.setattr(sessions, "connect_first", connect_first)
    idle, other_end = socket.socketpair()
    with idle, other_end:
        for brokers, alone in (((1,), True), ((1, 2), False)):
            session_of(*brokers)._connections([1, 1], 0)
            session_of(*brokers)._connections([None], 0)
            assert [told.pop(), told.pop()] == [alone, alone]
        session_of(1, 2)._connections([1, 2], 0)
        assert told == [False]


def test_who_may_not_see_a_group_does_not_hear_that_it_has_no_coordinator() -> None:
    refused = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert _no_coordinator(GROUP, "g", refused).what == 'group "g" cannot be seen'
    away = Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert _no_coordinator(TRANSACTION, "g", away).what == 'transactional id "g" has no coordinator'


def test_a_login_that_a_broker_refuses_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends records or reads them waits for a broker that is Disconnected."""
    login = failure(ErrorCode.SASL_AUTHENTICATION_FAILED, "user u could not log in")
    session = session_of(1, 2)
    monkeypatch.setattr(sessions, "connect_all", lambda addresses, *_, **__: [login for _ in addresses])
    with pytest.raises(KctlError) as told:
        session.connect(2)
    error = told.value
    assert error.what == "broker 2 at h:2  user u could not log in"
    assert (error.exit_code, error.code) == (Exit.UNAUTHORIZED, login.code)
    assert not isinstance(error, Disconnected)
    assert silent_brokers({1: [], 2: error}) == {2}, "it cannot be asked"
    away = Disconnected("h:2  connection refused")
    assert isinstance(unreachable(2, Address("h", 2), away), Disconnected)


def test_patience_ends_with_the_timeout() -> None:
    cluster = Cluster({"a": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    result = cluster.run({"a": 1})["a"]
    assert isinstance(result, KctlError)
    assert (result.code, result.exit_code) == ("COORDINATOR_LOAD_IN_PROGRESS", Exit.UNREACHABLE)
    assert cluster.now == 3


def test_what_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    """A command asks many questions; one partition that nobody leads must not cost it the time-out for each."""
    given_up: set[str] = set()
    cluster = Cluster({"a": ErrorCode.NOT_LEADER_OR_FOLLOWER, "b": 0})
    assert isinstance(cluster.run({"a": 1, "b": 1}, given_up=given_up)["a"], KctlError)
    assert (cluster.now, given_up) == (3, {"a"})
    assert isinstance(cluster.run({"a": 1, "b": 1}, given_up=given_up)["a"], KctlError)
    assert cluster.now == 3
    cluster.rounds = [{"a": 0, "b": 0}]
    assert cluster.run({"a": 1}, given_up=given_up) == {"a": "a@1"}
    assert given_up == set(), "it may fail again, and is waited for then"


def test_a_refusal_is_final() -> None:
    cluster = Cluster({"a": ErrorCode.GROUP_AUTHORIZATION_FAILED})
    result = cluster.run({"a": 1})["a"]
    assert isinstance(result, KctlError) and result.exit_code == Exit.UNAUTHORIZED
    assert len(cluster.asked) == 1


def test_a_broker_that_is_down_fails_what_only_it_knows() -> None:
    down = Disconnected("broker 2 is down")
    cluster = Cluster({"a": 0, "b": down})
    assert cluster.run({"a": 1, "b": 2}) == {"a": "a@1", "b": down}
    assert (cluster.asked[:2], cluster.now) == ([["a", "b"], ["b"]], 3), "it may be back, or another in its place"


def test_who_takes_over_from_a_broker_that_is_down_is_asked() -> None:
    down = Disconnected("broker 2 is down")
    cluster = Cluster({"a": down}, {"a": down}, {"a": 0})
    assert cluster.run({"a": 2}) == {"a": "a@2"}
    assert cluster.now == 2


def test_a_partition_without_a_leader_is_waited_for_a_second() -> None:
    nobody = failure(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
    cluster = Cluster({})
    assert cluster.run({"a": nobody}, timeout=60) == {"a": nobody}
    assert cluster.now == 1


def test_a_leader_that_does_not_know_what_is_committed_is_waited_for_a_second() -> None:
    """It is new, or too few replicas are in sync, and then for long."""
    cluster = Cluster({"a": ErrorCode.OFFSET_NOT_AVAILABLE})
    result = cluster.run({"a": 1}, timeout=60)["a"]
    assert isinstance(result, KctlError) and "followers" in result.hints[0]
    assert cluster.now == 1


def test_metadata_makes_no_topic(session: Session) -> None:
    (topic,) = session.metadata(["never-made"])
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "never-made" not in [topic.name for topic in session.metadata()]


def test_unknown_partitions_say_so_beside_known_ones(session: Session) -> None:
    found = offsets_at(session, {TopicPartition("never-made", 0): LATEST})
    (error,) = found.values()
    assert isinstance(error, KctlError)
    assert (error.exit_code, error.code) == (Exit.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_connection_that_the_broker_closed_is_opened_again(session: Session) -> None:
    session.metadata(())
    session.connection()._socket.shutdown(socket.SHUT_RDWR)
    assert session.refresh().brokers


def test_a_connection_that_somebody_gave_up_is_opened_again(session: Session) -> None:
    """Such as one on which an answer did not come in time to who reads frames by himself."""
    session.metadata(())
    with pytest.raises(KctlError, match="in time"):
        session.connection().receive_frame(time.monotonic(), "what nobody asked")
    assert session.refresh().brokers


def test_a_broker_that_is_not_there(session: Session) -> None:
    with pytest.raises(KctlError, match="broker 77 does not exist") as told:
        session.metadata(())
        session.connection(77)
    assert told.value.exit_code == Exit.NOT_FOUND


def test_a_broker_is_there_or_down_or_was_never(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(1, 2)
    there = [1, 2]
    asked = []

    def call(request: MetadataRequest, broker: int | None = None) -> MetadataResponse:
        asked.append(request.topics)
        brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in there]
        held = [MetadataResponsePartition(replica_nodes=[1, 2, 3])]
        return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=held)])

    monkeypatch.setattr(session, "call", call)
    assert session.absent([1]) == Absent([], []) and asked == []
    assert session.absent([1, 3, 9]) == Absent([3], [9])
    assert session.no_broker([3]).what == "broker 3 is down"
    assert session.no_broker([3]).exit_code is Exit.UNREACHABLE
    never = session.no_broker([1, 3, 9])
    assert never.what == "broker 9 does not exist, or is down and holds nothing that may be seen"
    assert never.exit_code == Exit.NOT_FOUND
    assert never.hints == ("existing brokers: 1, 2",)
    assert asked == [None], "who is down and who never was are looked up once"
    there.remove(2)
    assert list(session.refresh().brokers) == [1]
    assert session.absent([2, 9]) == Absent([2], [9])
    assert asked == [None, [], None], "what the brokers hold that went since is not known yet"


def test_of_a_broker_that_nobody_tells_of_it_is_not_said_that_it_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_of(1)

    def metadata(topics: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        raise KctlError("no broker answered", exit_code=Exit.UNREACHABLE, hints=("h:1  connection refused",))

    monkeypatch.setattr(session, "metadata", metadata)
    error = session.no_broker([1, 3])
    assert error.what == "broker 3 is not registered, and it is not known why: no broker answered"
    assert (error.exit_code, error.hints) == (Exit.UNREACHABLE, ("h:1  connection refused",))


def test_what_any_broker_knows_is_asked_of_another_when_one_dies(pair: tuple[Flaky, Flaky]) -> None:
    dying, other = pair
    session = Session(Settings(), Access(bootstrap=(tuple(dying.address),)))
    assert list(session.cluster.brokers) == [1, 2]
    dying.die()
    assert list(session.refresh().brokers) == [1, 2], "the other one is known from the metadata"
    assert METADATA in other.asked
    session.close()


def test_what_may_have_been_done_is_not_asked_twice(pair: tuple[Flaky, Flaky]) -> None:
    dying, other = pair
    session = Session(Settings(), Access(bootstrap=(tuple(dying.address),)))
    assert session.cluster.controller_id == 1
    session.connection(1)
    dying.answers = False
    with pytest.raises(Disconnected) as told:
        session.ask_controller(CreateTopicsRequest(topics=[]), lambda answer: [])
    assert told.value.in_doubt and CREATE_TOPICS not in other.asked
    assert told.value.hints[0] == MAY_STILL_BE_DONE
    session.close()


DESCRIBE = 1 << 8
NOT_TOLD = -(2**31)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Rights:
    """A broker that tells a session what its user may do to the cluster, of these versions of DescribeCluster and
    Metadata, and answers `code` for every topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session: Session, operations: int, code: int = 0) -> None:
        self.asked: list[object] = []
        self.versions: dict[type, int | None] = {DescribeClusterRequest: 0, MetadataRequest: 12}
        self.operations = operations
        self._code = code
        monkeypatch.setattr(session, "call", self._call)
        monkeypatch.setattr(session, "version_of", self.versions.get)

    def _call(self, request: DescribeClusterRequest | MetadataRequest, broker: int | None = None) -> object:
        self.asked.append(request)
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(cluster_id="c", cluster_authorized_operations=self.operations)
        partitions = [] if self._code else [MetadataResponsePartition(leader_id=-1)]
        topics = [
            MetadataResponseTopic(name=topic.name, error_code=self._code, partitions=partitions)
            for topic in request.topics or ()
        ]
        return MetadataResponse(topics=topics, cluster_authorized_operations=self.operations)


def codes(errors: list[KctlError]) -> list[str]:
    return [error.code for error in errors]


def test_groups_that_may_not_be_seen_are_missed_and_nothing_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers log each refusal."""
    session = session_of(1)
    rights = Rights(monkeypatch, session, 0, REFUSED)
    for _ in range(2):
        assert codes(session.unlisted(GROUP)) == ["CLUSTER_AUTHORIZATION_FAILED"]
        assert session.unlisted(TRANSACTION) == []
    of_cluster, of_topic = rights.asked
    assert of_cluster == DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert isinstance(of_topic, MetadataRequest)


def test_a_topic_of_coordinators_that_may_not_be_seen_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(1)
    rights = Rights(monkeypatch, session, DESCRIBE, REFUSED)
    assert [session.unlisted(GROUP), session.unlisted(GROUP)] == [[], []]
    assert [type(asked) for asked in rights.asked].count(MetadataRequest) == 1


def test_a_right_to_describe_the_cluster_that_is_taken_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a user watches."""
    session = session_of(1)
    rights = Rights(monkeypatch, session, DESCRIBE, REFUSED)
    assert session.unlisted(GROUP) == []
    rights.operations = 0
    [missing] = session.unlisted(GROUP)
    assert missing.hints[0].endswith("--cluster --operation Describe")


@pytest.mark.parametrize(
    ("version", "operations", "expected"),
    [
        (10, 0, "CLUSTER_AUTHORIZATION_FAILED"),
        (8, DESCRIBE, "COORDINATOR_NOT_AVAILABLE"),
        (7, 0, "COORDINATOR_NOT_AVAILABLE"),
        (11, 0, "COORDINATOR_NOT_AVAILABLE"),
        (10, NOT_TOLD, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_brokers_without_describe_cluster_tell_in_metadata_whether_all_groups_are_seen(
    monkeypatch: pytest.MonkeyPatch, version: int, operations: int, expected: str
) -> None:
    session = session_of(1)
    Rights(monkeypatch, session, operations).versions.update({DescribeClusterRequest: None, MetadataRequest: version})
    assert codes(session.unlisted(GROUP)) == [expected]


def test_what_was_only_to_be_checked_cannot_still_be_carried_out(pair: tuple[Flaky, Flaky]) -> None:
    dying, _ = pair
    session = Session(Settings(), Access(bootstrap=(tuple(dying.address),)))
    session.connection(1)
    dying.answers = False
    (lost,) = session.call_each({1: CreateTopicsRequest(topics=[], validate_only=True)}).values()
    assert isinstance(lost, Disconnected) and lost.in_doubt and MAY_STILL_BE_DONE not in lost.hints
    session.close()


ADVERTISED = "broker 2 advertises {}, which is a broker of cluster theirs, not of ours"
"""What is said where broker 1 tells of another cluster's address."""


def test_a_broker_of_another_cluster_is_asked_for_nothing(pair: tuple[Flaky, Flaky]) -> None:
    """An advertised address that leads there must not have topics made, or deleted, in the wrong cluster."""
    first, other = pair
    other.cluster_id = "theirs"
    session = Session(Settings(), Access(bootstrap=(tuple(first.address),)))
    (refused,) = session.call_each({2: CreateTopicsRequest(topics=[])}).values()
    assert isinstance(refused, OtherCluster) and refused.exit_code is Exit.REFUSED
    assert refused.what == ADVERTISED.format(other.address)
    assert refused.hints == ("see advertised.listeners of broker 2",)
    assert refused.address == str(other.address)
    with pytest.raises(OtherCluster):
        session.connect(2)
    assert CREATE_TOPICS not in other.asked
    session.close()


def test_an_address_in_another_cluster_ends_the_waiting_only_where_there_is_no_other(pair: tuple[Flaky, Flaky]) -> None:
    first, other = pair
    other.cluster_id = "theirs"
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(60)

    access = Access(bootstrap=(tuple(first.address),))
    session = Session(Settings(), access, lambda: time.monotonic() + sum(slept), sleep)
    told_of = session.cluster
    assert len(told_of.brokers) == 2
    first.die()
    with pytest.raises(KctlError, match="no broker answered") as told:
        session.refresh()
    assert told.value.exit_code is Exit.UNREACHABLE and slept, "it may be back soon"
    assert f"{other.address} is a broker of cluster theirs, not of ours" in told.value.hints
    session.access = Access(bootstrap=(tuple(other.address),))
    session._cluster = told_of._replace(brokers={2: told_of.brokers[2]})
    with pytest.raises(OtherCluster) as left:
        session.refresh()
    assert left.value.what == ADVERTISED.format(other.address)
    session.close()


def test_the_controller_is_not_asked_for_in_another_cluster(pair: tuple[Flaky, Flaky]) -> None:
    first, other = pair
    first.controller, other.cluster_id = 2, "theirs"
    session = Session(Settings(), Access(bootstrap=(tuple(first.address),)), sleep=_never)
    with pytest.raises(OtherCluster):
        session.ask_controller(CreateTopicsRequest(topics=[]), lambda answer: [])
    session.close()


def test_who_has_become_controller_is_asked_after_one_that_was_waited_for(pair: tuple[Flaky, Flaky]) -> None:
    other, silent = pair
    other.controller = 2
    session = Session(Settings(), Access(bootstrap=(tuple(other.address),)), sleep=lambda seconds: None)
    assert session.controller == 2
    silent.close()
    session._silent[2] = float("-inf")
    other.controller = 1
    session.ask_controller(CreateTopicsRequest(topics=[]), lambda answer: [])
    assert [key for key in other.asked if key != API_VERSIONS] == [METADATA, METADATA, CREATE_TOPICS]
    session.close()


def test_a_controller_that_was_waited_for_in_vain_is_tried_once(pair: tuple[Flaky, Flaky]) -> None:
    other, silent = pair
    other.controller = 2
    session = Session(Settings(), Access(bootstrap=(tuple(other.address),)), sleep=lambda seconds: None)
    assert session.controller == 2
    silent.close()
    session._silent[2] = float("-inf")
    with pytest.raises(Disconnected, match=r"broker 2 at .* connection refused"):
        session.ask_controller(CreateTopicsRequest(topics=[]), lambda answer: [])
    asked = [key for key in other.asked if key != API_VERSIONS]
    assert asked == [METADATA, METADATA], "another may have become controller meanwhile"
    session.close()


def test_in_kraft_no_broker_is_the_controller(pair: tuple[Flaky, Flaky]) -> None:
    """The one that is named may be one that we cannot reach; any other passes the request on, too."""
    asked, named = pair
    asked.served.append(DESCRIBE_QUORUM)
    asked.controller = 2
    named.close()
    session = Session(Settings(), Access(bootstrap=(tuple(asked.address),)), sleep=_never)
    assert session.ask_controller(MetadataRequest(topics=[]), lambda answer: []).controller_id == 2
    session.close()


def _never(seconds: float) -> None:
    raise AssertionError("waiting does not help")


@pytest.mark.parametrize("told", [None, "", "ours"])
def test_brokers_that_tell_no_cluster_are_asked(pair: tuple[Flaky, Flaky], told: str | None) -> None:
    first, other = pair
    other.cluster_id = told
    session = Session(Settings(), Access(bootstrap=(tuple(first.address),)))
    assert not isinstance(session.call(MetadataRequest(topics=[]), 2), KctlError)
    first.cluster_id = None
    session.refresh()
    session.connect(2).close()
    session.close()


class Asked:
    """A connection to a broker that has answered already, or never will; `order` has whose answers were waited for."""

    def __init__(self, broker: int, has_answered: bool, order: list[int]) -> None:
        self.address = Address("h", broker)
        self.has_answered = has_answered
        self._broker = broker
        self._order = order
        self._ours, self._theirs = socket.socketpair()
        if has_answered:
            self._theirs.send(b".")

    def send(self, request: object) -> None:
        """It always fits into the buffer."""

    def receive(self, deadline: float) -> str:
        self._order.append(self._broker)
        if not self.has_answered:
            raise Disconnected("no answer")
        return f"of {self._broker}"

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def test_answers_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one fills the socket's buffer: it does not get through while a broker that hangs is waited for."""
    settings = Settings()
    settings.timeout = 0
    session = Session(settings, Access())
    order: list[int] = []
    connections = {broker: Asked(broker, broker > 1, order) for broker in (1, 2, 3)}
    connections[3].close()
    monkeypatch.setattr(session, "_connections", lambda brokers, deadline: connections)
    request = MetadataRequest(topics=[])
    none, *others = session.call_many([(1, request), (2, request), (3, request), (2, request)])
    assert isinstance(none, Disconnected) and others == ["of 2", "of 3", "of 2"]
    assert order == [3, 2, 2, 1]
    for connection in connections.values():
        connection.close()


def test_a_silent_broker_is_waited_for_once_in_a_run() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    settings = Settings()
    settings.timeout = 5
    session = Session(settings, Access(), lambda: now[0], sleep)
    down = Disconnected("broker 2 is down")
    session.call_each = lambda requests: dict.fromkeys(requests, down)  # type: ignore[method-assign]
    session.coordinators = lambda keys, kind=0: dict.fromkeys(keys, 2)  # type: ignore[method-assign]
    for _ in range(3):
        assert session.ask_coordinators(["g"], list, lambda answer: ()) == {"g": down}
    assert 5 <= now[0] < 7


def test_a_silent_controller_is_waited_for_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    session = session_of(1, 2)
    monkeypatch.setattr(session, "_clock", lambda: now[0])
    monkeypatch.setattr(session, "_sleep", sleep)
    monkeypatch.setattr(session, "refresh", lambda: session.cluster)
    monkeypatch.setattr(session, "connection", lambda: SimpleNamespace(versions={}))
    down = Disconnected("broker 1 is down")
    monkeypatch.setattr(session, "call_many", lambda asked: [down for _ in asked])
    session.settings.timeout = 5
    for _ in range(3):
        with pytest.raises(Disconnected, match="broker 1 is down"):
            session.ask_controller(CreateTopicsRequest(topics=[]), lambda answer: ())
    assert 5 <= now[0] < 6
