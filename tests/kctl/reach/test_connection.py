"""One connection to one broker: how it is opened, and what is said where it cannot be used."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from threading import Thread
from types import SimpleNamespace

import pytest

from kafkad.wire.messages.metadata import MetadataRequest
from kctl.errors import Disconnected, Exit, KctlError
from kctl.reach import connection as connections
from kctl.reach.access import Access
from kctl.reach.connection import (
    Address,
    Connection,
    connect_first,
    connect_seconds,
    opening_seconds,
    trouble,
    unreachable,
)
from tests.broker import KafkadProcess
from tests.kctl.flaky import Flaky
from tests.oracle.kafka import free_port


class SlowSocket:
    """Takes a few bytes at a time."""

    def __init__(self) -> None:
        self.taken = b""
        self.timeouts: list[float] = []

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def send(self, data: memoryview) -> int:
        self.taken += data[:7]
        return min(len(data), 7)


def test_a_slow_link_may_take_its_time_for_a_request() -> None:
    sock = SlowSocket()
    connection = Connection(sock, Address("a", 1), "me", 2.5)  # type: ignore[arg-type]
    connection.versions = {3: (0, 9)}
    connection.send(MetadataRequest(topics=None))
    assert int.from_bytes(sock.taken[:4], "big") == len(sock.taken) - 4 > 7
    assert sock.timeouts == [2.5]


def test_the_time_out_reaches_the_opening_of_connections() -> None:
    def seconds(left: float, *, alone: bool) -> tuple[float, float]:
        return connect_seconds(left, alone=alone), opening_seconds(left, alone=alone)

    assert (seconds(10, alone=False), seconds(60, alone=False)) == ((3, 5), (15, 30))
    assert seconds(3, alone=False) == (1.5, 1.5), "brokers that are well have to be asked in time"
    assert (seconds(3, alone=True), seconds(60, alone=True)) == ((3, 3), (15, 60))


def test_a_request_that_was_not_answered_is_not_said_to_have_been() -> None:
    def what_of(end: Callable[[socket.socket], object], deadline: float) -> str:
        ours, theirs = socket.socketpair()
        connection = Connection(ours, Address("h", 9092), "me")
        end(theirs)
        with pytest.raises(Disconnected) as told:
            connection.receive_frame(deadline, "ApiVersions")
        theirs.close()
        return told.value.what

    assert what_of(lambda theirs: None, 0) == "broker h:9092 did not answer ApiVersions in time"
    gone = what_of(lambda theirs: theirs.close(), time.monotonic() + 60)
    assert gone == "broker h:9092 closed the connection instead of answering ApiVersions"


def test_a_broker_that_hangs_is_named_once() -> None:
    hung = Disconnected("broker h:9092 did not answer ApiVersions in time")
    address = Address("h", 9092)
    assert unreachable(3, address, hung).what == "broker 3 at h:9092 did not answer ApiVersions in time"
    refused = Disconnected("h:9092  connection refused")
    assert unreachable(3, address, refused).what == "broker 3 at h:9092  connection refused"
    login = KctlError("user u could not log in", exit_code=Exit.UNAUTHORIZED)
    assert unreachable(3, address, login).what == "broker 3 at h:9092  user u could not log in"


def test_the_setting_is_named_where_an_advertised_address_does_not_answer() -> None:
    address, refused = Address("h", 9092), Disconnected("h:9092  no such host")
    assert "advertised.listeners" in unreachable(3, address, refused).hints[0]
    assert unreachable(3, address, refused, is_given=True).hints == ()
    login = KctlError("user u could not log in", exit_code=Exit.UNAUTHORIZED)
    assert unreachable(3, address, login).hints == ()


def test_refused_ports_are_told_at_once(broker: KafkadProcess) -> None:
    begin = time.monotonic()
    with pytest.raises(KctlError) as told:
        connect_first(
            [Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port())], Access(), begin + 10, alone=True
        )
    assert told.value.exit_code == Exit.UNREACHABLE
    assert sum("connection refused" in hint for hint in told.value.hints) == 2
    assert time.monotonic() - begin < 3, "nothing may wait for a time-out"


def test_the_first_that_answers_is_enough(broker: KafkadProcess) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never says a word
    try:
        addresses = [Address("127.0.0.1", silent.getsockname()[1]), Address("127.0.0.1", broker.port)]
        connection = connect_first(addresses, Access(), time.monotonic() + 10, alone=True)
        assert connection.address.port == broker.port
        connection.close()
    finally:
        silent.close()


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda _: b"\0\0\0\5hello",
        lambda request: request,
    ],
    ids=["HTTP", "a short frame", "an echo"],
)
def test_something_else_than_kafka(answer: Callable[[bytes], bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(answer(peer.recv(1000)))

        thread = Thread(target=speak)
        thread.start()
        with pytest.raises(KctlError) as told:
            connect_first([Address("127.0.0.1", server.getsockname()[1])], Access(), time.monotonic() + 10, alone=True)
        thread.join()
    assert "does not speak the Kafka protocol" in "\n".join(told.value.hints)


def test_a_defect_is_told_as_one_of_its_address() -> None:
    def what(error: Exception) -> tuple[str, Exit]:
        told = trouble(Address("h", 1), error)
        return told.what, Exit(told.exit_code)

    assert what(ConnectionRefusedError(111, "Connection refused")) == ("h:1  connection refused", Exit.UNREACHABLE)
    assert what(UnicodeError("label too long")) == ("h:1  no such host", Exit.UNREACHABLE)
    assert what(FileNotFoundError(2, "No such file", "/x.pem")) == ("/x.pem: No such file", Exit.NOT_FOUND)
    assert what(ValueError("embedded null")) == ("h:1  ValueError: embedded null", Exit.FAILED)
    login = KctlError("user u could not log in", exit_code=Exit.UNAUTHORIZED)
    assert trouble(Address("h", 1), login) is login


@pytest.mark.parametrize(("alone", "until"), [(False, 6.5), (True, 10)])
def test_a_slow_broker_has_time_to_tell_its_cluster(
    pair: tuple[Flaky, Flaky], monkeypatch: pytest.MonkeyPatch, alone: bool, until: float
) -> None:
    now, deadlines = [0.0], []

    def opened(sock: socket.socket, address: Address, access: Access, deadline: float, patience: float) -> Connection:
        now[0] = 3
        return Connection(sock, address, "me")

    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(connections, "_opened", opened)
    monkeypatch.setattr(connections, "ensure_of_cluster", lambda _, __, deadline: deadlines.append(deadline))
    connections.connect(pair[0].address, Access(), 10, alone=alone, cluster_id="ours").close()
    assert deadlines == [until], "as much is left for what it is to be asked"
