"""Listeners that others could read along are named, until they are said to be meant."""

from __future__ import annotations

import pytest

from kafkad.config import load
from kafkad.config.exposed import exposed, has_open_metrics


def listening(listeners: str, *settings: str) -> list[str]:
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,IN:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL"
    return exposed(load(None, [f"listeners={listeners}", protocols, "inter.broker.listener.name=IN", *settings], {}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.5", "127.1", "localhost", "Localhost.", "[::1]"])
def test_this_machine_is_nobody_else(host: str) -> None:
    assert listening(f"IN://{host}:9092") == []


@pytest.mark.parametrize(("host", "where"), [("", "every interface"), ("0.0.0.0", "0.0.0.0"), ("10.0.0.1", "10.0.0.1")])
def test_a_listener_without_tls_is_named(host: str, where: str) -> None:
    [told] = listening(f"IN://{host}:9092", "advertised.listeners=IN://kafka:9092")
    assert told.startswith(
        f"listener IN is PLAINTEXT on {where}: anybody who reaches it may do what User:ANONYMOUS may"
    )
    assert told.endswith("; give it TLS (see docs/security.md), or say kafkad.insecure=true")


@pytest.mark.parametrize(
    "host", ["[::1234]", "[::1:2]", "localhost.example.org", "127.example.org", "127.0.0.1.example.org"]
)
def test_a_name_or_an_address_that_only_begins_like_this_machine(host: str) -> None:
    assert len(listening(f"IN://{host}:9092", f"http.listener={host}:9404")) == 2


def test_each_of_several() -> None:
    found = listening(
        "IN://127.0.0.1:9092,PLAINTEXT://10.0.0.1:9093",
        "advertised.listeners=IN://127.0.0.1:9092,PLAINTEXT://10.0.0.1:9093",
    )
    assert [told.split()[1] for told in found] == ["PLAINTEXT"]


def test_who_means_it_is_told_nothing() -> None:
    assert listening("IN://0.0.0.0:9092", "advertised.listeners=IN://kafka:9092", "kafkad.insecure=true") == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["http.listener=127.0.0.1:9404"], False),
        (["http.listener=https://[::1]:9404"], False),
        (["http.listener=:9404"], True),
        (["http.listener=https://0.0.0.0:9404"], True),
        (["http.listener=0.0.0.0:9404", "kafkad.http.token=t"], False),
        (["http.listener=0.0.0.0:9404", "kafkad.insecure=true"], False),
    ],
)
def test_metrics_that_anybody_may_read_are_named(settings: list[str], told: bool) -> None:
    found = listening("IN://127.0.0.1:9092", "listener.name.http.ssl.keystore.location=/k", *settings)
    config = load(None, ["listener.name.http.ssl.keystore.location=/k", *settings], {})
    assert has_open_metrics(config) is (told or "kafkad.insecure=true" in settings)
    assert bool(found) is told
    if told:
        assert found[0].endswith("may read the metrics; set kafkad.http.token, or say kafkad.insecure=true")
