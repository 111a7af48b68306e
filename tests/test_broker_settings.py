"""The settings that are handed to the parts of a broker."""

from __future__ import annotations

import resource

import pytest

from kafkad.broker.settings import Settings, _by_address
from kafkad.config import load


def test_connections_are_limited_for_each_listener_and_host(caplog: pytest.LogCaptureFixture) -> None:
    options = [
        "listeners=IN://127.0.0.1:0,OUT://[::1]:0",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
        "max.connections=50",
        "listener.name.out.max.connections=7",
        "max.connections.per.ip.overrides=localhost:3,0:0:0:0:0:0:0:2:4,no.such.host.invalid:5",
    ]
    limits = Settings(load(None, options, {})).limits()
    assert limits.max_per_listener == {"IN": 50, "OUT": 7}
    assert limits.allowed_from("127.0.0.1") == 3
    assert limits.allowed_from("::2") == 4
    assert "no.such.host.invalid is left out" in caplog.text


def test_a_name_that_no_host_can_have_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert _by_address((("a..b", 5), ("127.0.0.1", 3))) == {"127.0.0.1": 3}
    assert "a..b is left out" in caplog.text


def test_overrides_that_the_store_should_not_have_keep_no_broker_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(load(None, [], {}))
    settings.override(cluster_wide={"max.connections.per.ip.overrides": "localhost"}, per_broker={})
    assert settings.limits().per_ip_overrides == {}
    assert "'localhost' is not host:count; the setting is left out" in caplog.text


@pytest.mark.parametrize(("limit", "sockets"), [(256, 64), (1024, 448), (64, 16)])
def test_connections_leave_file_descriptors_to_logs_and_all_else(
    monkeypatch: pytest.MonkeyPatch, limit: int, sockets: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert Settings(load(None, [], {})).limits().max_sockets == sockets
