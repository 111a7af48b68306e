"""Whom a session asks, and what becomes of those who do not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.access import Access
from kctl.connection import Address, Disconnected, connect_first
from kctl.errors import Exit, KctlError, failure
from kctl.offsets import LATEST, offsets_at
from kctl.rounds import Rounds
from kctl.session import Session
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.oracle.kafka import free_port


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

    def run(self, places: dict[str, int | KctlError], timeout: float = 3) -> dict[str, str | KctlError]:
        rounds: Rounds[str, str] = Rounds(
            "group", lambda keys: {key: places[key] for key in keys}, list, lambda answer: answer, timeout
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


def test_patience_ends_with_the_timeout() -> None:
    cluster = Cluster({"a": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    result = cluster.run({"a": 1})["a"]
    assert isinstance(result, KctlError)
    assert (result.code, result.exit_code) == ("COORDINATOR_LOAD_IN_PROGRESS", Exit.UNREACHABLE)
    assert cluster.now == 3


def test_a_refusal_is_final() -> None:
    cluster = Cluster({"a": ErrorCode.GROUP_AUTHORIZATION_FAILED})
    result = cluster.run({"a": 1})["a"]
    assert isinstance(result, KctlError) and result.exit_code == Exit.UNAUTHORIZED
    assert len(cluster.asked) == 1


def test_a_broker_that_is_down_fails_what_only_it_knows() -> None:
    down = Disconnected("broker 2 is down")
    cluster = Cluster({"a": 0, "b": down})
    assert cluster.run({"a": 1, "b": 2}) == {"a": "a@1", "b": down}
    assert cluster.asked == [["a", "b"], []], "it is looked for once more, and not asked again"


def test_a_partition_without_a_leader_is_waited_for_a_second() -> None:
    nobody = failure(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
    cluster = Cluster({})
    assert cluster.run({"a": nobody}, timeout=60) == {"a": nobody}
    assert cluster.now == 1


def test_metadata_makes_no_topic(session: Session) -> None:
    (topic,) = session.metadata(["never-made"]).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "never-made" not in [topic.name for topic in session.metadata().topics]


def test_unknown_partitions_say_so_beside_known_ones(session: Session) -> None:
    found = offsets_at(session, {TopicPartition("never-made", 0): LATEST})
    (error,) = found.values()
    assert isinstance(error, KctlError)
    assert (error.exit_code, error.code) == (Exit.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_connection_that_the_broker_closed_is_opened_again(session: Session) -> None:
    session.metadata(())
    session.connection()._socket.shutdown(socket.SHUT_RDWR)
    assert session.metadata(()).brokers


def test_a_broker_that_is_not_there(session: Session) -> None:
    with pytest.raises(KctlError, match="broker 77 is not there") as told:
        session.metadata(())
        session.connection(77)
    assert told.value.exit_code == Exit.NOT_FOUND


def test_refused_ports_are_told_at_once(broker: KafkadProcess) -> None:
    begin = time.monotonic()
    with pytest.raises(KctlError) as told:
        connect_first([Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())], Access(), begin + 10)
    assert told.value.exit_code == Exit.UNREACHABLE
    assert sum("connection refused" in hint for hint in told.value.hints) == 2
    assert time.monotonic() - begin < 3, "nothing may wait for a time-out"


def test_the_first_that_answers_is_enough(broker: KafkadProcess) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never says a word
    try:
        addresses = [Address("127.0.0.1", silent.getsockname()[1]), Address("127.0.0.1", broker.port)]
        connection = connect_first(addresses, Access(), time.monotonic() + 10)
        assert connection.address.port == broker.port
        connection.close()
    finally:
        silent.close()


def test_something_else_than_kafka() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        from threading import Thread

        def speak() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")

        thread = Thread(target=speak)
        thread.start()
        with pytest.raises(KctlError) as told:
            connect_first([Address("127.0.0.1", server.getsockname()[1])], Access(), time.monotonic() + 10)
        thread.join()
    assert "does not speak Kafka's protocol" in "\\n".join(told.value.hints)
