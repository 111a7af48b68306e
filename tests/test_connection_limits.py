"""Limits of connections, with hosts that stand under a name: nobody waits for a name server but the start."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkad.broker.connection_limits import ConnectionLimits
from kafkad.broker.settings import Settings
from kafkad.broker.thread_per_call import ThreadPerCall
from kafkad.config import load
from kafkad.timers import Timers
from tests.fakes import FakeClock
from tests.net.serving import Serving, echo, serving
from tests.one_broker import OneBroker

OVERRIDES = "max.connections.per.ip.overrides"


class NameServer:
    """Knows what it is told, and says nothing until it may."""

    def __init__(self, **known: str) -> None:
        self.known = known
        self.may_answer = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, *arguments: object, **named: object) -> list[Any]:
        assert threading.current_thread() is not threading.main_thread()
        self.asked.append(host)
        assert self.may_answer.wait(20)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (self.known[host], 0))]


class Limited:
    """A server whose limits are those of settings that change."""

    def __init__(self) -> None:
        self.settings = Settings(load(None, [], {}))
        self.server = serving()
        self.clock, self.timers = FakeClock(), Timers()
        self.limits = ConnectionLimits(self.settings, self.server, ThreadPerCall(), self.clock, self.timers)

    def set(self, **cluster_wide: str) -> None:
        named = {name.replace("_", "."): value for name, value in cluster_wide.items()}
        self.settings.override(cluster_wide=named, per_broker={})
        self.limits.settings_changed()

    def after(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())

    @property
    def overrides(self) -> dict[str, int]:
        return dict(self.server.limits.per_ip_overrides)


def limited(scenario: Callable[[Limited], Awaitable[None]]) -> None:
    async def run() -> None:
        made = Limited()
        try:
            await scenario(made)
        finally:
            made.server.close()

    asyncio.run(run())


def test_names_are_looked_up_when_the_setting_changes_and_nobody_waits_for_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = NameServer(one="10.0.0.1", two="10.0.0.2")
    monkeypatch.setattr("kafkad.broker.host_addresses.socket.getaddrinfo", names)

    async def scenario(broker: Limited) -> None:
        broker.set(max_connections_per_ip_overrides="one:3,0:0:0:0:0:0:0:2:4,::ffff:10.0.0.7:5")
        assert broker.overrides == {"::2": 4, "10.0.0.7": 5}
        names.may_answer.set()
        await broker.limits.hosts_found()
        assert broker.overrides == {"10.0.0.1": 3, "::2": 4, "10.0.0.7": 5}
        broker.set(max_connections_per_ip_overrides="one:3,0:0:0:0:0:0:0:2:4,::ffff:10.0.0.7:5", max_connections="50")
        assert (broker.server.limits.max_connections, names.asked) == (50, ["one"]), "it was another setting"
        names.may_answer.clear()
        names.known["one"] = "10.0.0.9"
        broker.set(max_connections_per_ip_overrides="one:5,two:6,none:7")
        assert broker.overrides == {"10.0.0.1": 5}, "what is known holds meanwhile"
        names.may_answer.set()
        await broker.limits.hosts_found()
        assert broker.overrides == {"10.0.0.9": 5, "10.0.0.2": 6}
        why = "Name or service not known"
        assert f"{OVERRIDES}: no address of none was found, it is tried again: {why}" in caplog.text

    limited(scenario)


def test_an_answer_that_comes_too_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer(one="10.0.0.1")
    monkeypatch.setattr("kafkad.broker.host_addresses.socket.getaddrinfo", names)

    async def scenario(broker: Limited) -> None:
        broker.set(max_connections_per_ip_overrides="one:3")
        [late] = broker.limits._hosts._looking.values()
        broker.set()
        names.may_answer.set()
        await late
        assert broker.overrides == {}

    limited(scenario)


def test_a_name_server_that_is_away_takes_no_address_back(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer(one="10.0.0.1")
    names.may_answer.set()
    monkeypatch.setattr("kafkad.broker.host_addresses.socket.getaddrinfo", names)

    async def scenario(broker: Limited) -> None:
        broker.set(max_connections_per_ip_overrides="one:3")
        await broker.limits.hosts_found()
        names.known.clear()
        broker.set(max_connections_per_ip_overrides="one:4")
        await broker.limits.hosts_found()
        assert broker.overrides == {"10.0.0.1": 4}

    limited(scenario)


def test_a_name_that_was_not_found_is_looked_up_again_every_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = NameServer(one="10.0.0.1")
    names.may_answer.set()
    monkeypatch.setattr("kafkad.broker.host_addresses.socket.getaddrinfo", names)

    async def scenario(broker: Limited) -> None:
        broker.set(max_connections_per_ip_overrides="one:3,later:4,never:5")
        await broker.limits.hosts_found()
        broker.after(59_999)
        assert sorted(names.asked) == ["later", "never", "one"]
        broker.after(1)
        await broker.limits.hosts_found()
        assert sorted(names.asked[3:]) == ["later", "never"]
        names.known["later"] = "10.0.0.2"
        broker.after(60_000)
        await broker.limits.hosts_found()
        assert broker.overrides == {"10.0.0.1": 3, "10.0.0.2": 4}
        assert caplog.text.count("no address of") == 2, "not at each attempt"
        broker.set(max_connections_per_ip_overrides="one:3,later:4")
        await broker.limits.hosts_found()
        del names.asked[:]
        broker.after(60_000)
        assert (names.asked, len(broker.timers)) == ([], 0)

    limited(scenario)


def test_a_start_does_not_wait_for_a_name_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = NameServer(one="10.0.0.1", two="10.0.0.2")
    monkeypatch.setattr("kafkad.broker.host_addresses.socket.getaddrinfo", names)

    async def scenario(broker: Limited) -> None:
        broker.set(max_connections_per_ip_overrides="one:3,two:4,10.0.0.3:5")
        start = asyncio.create_task(broker.limits.hosts_found())
        await asyncio.sleep(0)
        broker.after(9_999)
        await asyncio.sleep(0)
        assert not start.done()
        broker.after(1)
        await start
        assert broker.overrides == {"10.0.0.3": 5}
        assert f"{OVERRIDES}: no name server has answered yet for one, two; it is not waited for" in caplog.text
        names.may_answer.set()
        await broker.limits.hosts_found()
        assert broker.overrides == {"10.0.0.1": 3, "10.0.0.2": 4, "10.0.0.3": 5}

    limited(scenario)


def test_overrides_that_the_store_should_not_have_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Limited) -> None:
        broker.set(max_connections_per_ip_overrides="localhost")
        assert broker.overrides == {}
        assert "'localhost' is not host:count; the setting is left out" in caplog.text

    limited(scenario)


def test_what_the_store_has_holds_at_listeners_that_are_bound_already() -> None:
    async def scenario(broker: Limited) -> None:
        listener = broker.server.listen("SASL", "127.0.0.1", 0, login=True)
        broker.set(**{"kafkad.max.unauthenticated.connections": "7", "kafkad.connection.setup.timeout.ms": "9"})
        assert (listener.lobby.most, listener.lobby.patience_ms) == (7, 9)
        assert not listener._accepting, "it does not listen yet"
        broker.server.start(Serving(echo))
        assert listener._accepting

    limited(scenario)


def test_a_broker_has_looked_names_up_when_it_starts(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, f"{OVERRIDES}=localhost:3,no.such.host.invalid:5")
    try:
        assert broker.parts.platform.server.limits.allowed_from("127.0.0.1") == 3
    finally:
        broker.stop()
