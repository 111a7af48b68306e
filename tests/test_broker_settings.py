"""The settings that are handed to the parts of a broker."""

from __future__ import annotations

import resource

import pytest

from kafkad import loggers
from kafkad.broker.settings import Settings
from kafkad.config import load


def test_connections_are_limited_for_each_listener_and_address() -> None:
    options = [
        "listeners=IN://127.0.0.1:0,OUT://[::1]:0",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
        "max.connections=50",
        "listener.name.out.max.connections=7",
        "max.connections.per.ip=9",
    ]
    limits = Settings(load(None, options, {})).limits({"::2": 4})
    assert limits.max_per_listener == {"IN": 50, "OUT": 7}
    assert (limits.allowed_from("::2"), limits.allowed_from("::3")) == (4, 9)


@pytest.mark.parametrize(("limit", "sockets"), [(256, 64), (1024, 448), (64, 16)])
def test_connections_leave_file_descriptors_to_logs_and_all_else(
    monkeypatch: pytest.MonkeyPatch, limit: int, sockets: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert Settings(load(None, [], {})).limits().max_sockets == sockets


def test_a_dynamic_setting_that_holds_for_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(load(None, [], {}))
    name = "listener.name.PLAINTEXT.max.connection.creation.rate"
    for _ in range(2):
        settings.override(cluster_wide={name: "5000"}, per_broker={name: "5000"})
    assert caplog.messages == [f"no effect: {name}: listeners and mechanisms are written in lower case there"]


def test_the_level_of_the_root_stays_until_kafkad_log_level_changes() -> None:
    before = loggers.levels()[loggers.ROOT]
    settings = Settings(load(None, [], {}))
    try:
        loggers.set_level(loggers.ROOT, "DEBUG")
        settings.override(cluster_wide={}, per_broker={"message.max.bytes": "2100000"})
        assert loggers.levels()[loggers.ROOT] == "DEBUG"
        settings.override(cluster_wide={"kafkad.log.level": "error"}, per_broker={})
        assert loggers.levels()[loggers.ROOT] == "ERROR"
        settings.override(cluster_wide={}, per_broker={})
        assert loggers.levels()[loggers.ROOT] == "INFO"
    finally:
        loggers.set_level(loggers.ROOT, before)
