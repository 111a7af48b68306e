"""Settings of several brokers on one host: what each of them is started with, and what cannot be."""

from __future__ import annotations

import pytest

from kafkad.config import Config, ConfigError, load
from kafkad.config.several import given_to_brokers, settings_of


def each(*overrides: str, first_id: int = 0) -> list[Config]:
    config = load(None, overrides, {})
    count = config.int("kafkad.brokers")
    return [load(None, [*overrides, *settings_of(config, n, first_id)], {}) for n in range(count)]


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, overrides, {})
    (text,) = caught.value.problems
    return text


def test_ids_go_on_above_the_reserved_ones() -> None:
    assert [config.broker_id for config in each("kafkad.brokers=2", first_id=1001)] == [1001, 1002]


def test_the_first_keeps_what_is_configured_and_the_others_have_their_own() -> None:
    first, second, third = each(
        "kafkad.brokers=3",
        "log.dirs=/a,/b",
        "listeners=PLAINTEXT://[::1]:9092,INSIDE://:9192",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "advertised.listeners=PLAINTEXT://kafka.example:9092,INSIDE://10.0.0.1:9192",
        "http.listener=:9404",
        first_id=7,
    )
    assert [config.broker_id for config in (first, second, third)] == [7, 8, 9]
    assert first.log_dirs == ("/a", "/b")
    assert second.log_dirs == ("/b/brokers/8", "/a/brokers/8"), "new partitions go to another disk first"
    assert third.log_dirs == ("/a/brokers/9", "/b/brokers/9")
    assert [e.port for e in first.listeners] == [9092, 9192]
    assert [(e.host, e.port) for e in third.listeners] == [("::1", 9094), ("", 9194)]
    assert [(e.host, e.port) for e in third.advertised_listeners] == [("kafka.example", 9094), ("10.0.0.1", 9194)]
    assert [config.http_listener for config in (first, second, third)] == [("", 9404), None, None]
    assert {config.metadata_dir for config in (first, second, third)} == {"/a"}
    assert third.int("kafkad.brokers") == 1


def test_any_port_stays_any_port() -> None:
    configs = each("kafkad.brokers=2", "listeners=PLAINTEXT://127.0.0.1:0")
    assert [config.listeners[0].port for config in configs] == [0, 0]


def test_ports_that_would_meet_are_refused() -> None:
    listeners = "listeners=PLAINTEXT://:9092,INSIDE://:9093"
    names = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"
    text = problem("kafkad.brokers=2", listeners, names)
    assert "port 9093 would be that of listener INSIDE of broker number 1 and of listener PLAINTEXT of broker" in text
    assert load(None, [listeners, names], {}).int("kafkad.brokers") == 1
    assert "http.listener" in problem("kafkad.brokers=2", "listeners=PLAINTEXT://:9092", "http.listener=:9093")
    assert "would have port 65536" in problem("kafkad.brokers=2", "listeners=PLAINTEXT://:65535")


def test_how_many_is_checked() -> None:
    assert "at least 1" in problem("kafkad.brokers=0")


def test_it_is_refused_together_with_zookeeper() -> None:
    text = problem("kafkad.brokers=2", "zookeeper.connect=localhost:2181")
    assert "zookeeper.connect cannot be set with it" in text
    assert "kafkad@ID" in text


def test_what_brokers_are_given_is_what_they_do_not_read_in_the_file() -> None:
    config = load(None, ["kafkad.brokers=2", "http.listener=:9404"], {})
    given = {"broker.id", "node.id", "broker.id.generation.enable", "kafkad.brokers", "kafkad.metadata.dir"}
    assert given_to_brokers(config) == given | {"listeners", "log.dirs"}, "the first serves HTTP where the file says"
    config = load(None, ["kafkad.brokers=2", "advertised.listeners=PLAINTEXT://kafka:9092"], {})
    assert given_to_brokers(config) == given | {"listeners", "log.dirs", "advertised.listeners"}
