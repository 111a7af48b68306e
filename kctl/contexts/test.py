"""`kctl contexts test`: what every other command does first, one step after another, at each address it may use."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import click

from kctl.command.cluster_names import context_names
from kctl.command.verb import KctlCommand, pass_settings
from kctl.errors import KctlError, OtherCluster, exit_code
from kctl.reach.access import Access, resolve
from kctl.reach.at_once import at_once
from kctl.reach.connection import (
    Address,
    Connection,
    ask_versions,
    connect_seconds,
    ensure_same,
    trouble,
    unreachable,
)
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, duration_text, render_errors

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponse

COLUMNS = (
    Column("address", "The address that was tried: one of the context, or one that a broker advertises."),
    Column("step", "What was done: DNS, TCP, TLS, SASL, ApiVersions, Metadata."),
    Column("result", "ok or error.", "state"),
    Column("milliseconds", "How long it took.", "number", "MS"),
    Column("found", "What was found, or what is wrong."),
)


class Step(NamedTuple):
    name: str
    milliseconds: int
    found: str
    error: KctlError | None = None


class Place(NamedTuple):
    """An address to try. `broker`: who advertises it, and in which cluster, if the context does not have it."""

    address: Address
    broker: int | None = None
    cluster_id: str | None = None


class Trial(NamedTuple):
    """What became of it there."""

    place: Place
    steps: tuple[Step, ...]
    metadata: MetadataResponse | None

    @property
    def error(self) -> KctlError | None:
        failed, (address, broker, _) = self.steps[-1].error, self.place
        return failed if failed is None or broker is None else unreachable(broker, address, failed)


@click.command("test", cls=KctlCommand, columns=COLUMNS)
@click.argument("name", required=False, shell_complete=context_names)
@pass_settings
def test(settings: Settings, name: str | None) -> int:
    """Connect and log in step by step, timing each step.

    Tries every bootstrap address of the context: name lookup (DNS), connection (TCP), encryption (TLS), login (SASL),
    the APIs served (ApiVersions) and the brokers known (Metadata). Then it tries the addresses that these brokers
    advertise, to which clients connect next. A failed step ends the test of its address. Without a name it tests the
    current context, or what -b and the other options say.

    Example: kctl contexts test prod
    """
    settings.context = name or settings.context
    access = resolve(settings, os.environ)

    def at(place: Place) -> Trial:
        return tried(place, access, settings.timeout)

    trials = of_one_cluster(at_once(at, [Place(Address(*pair)) for pair in access.bootstrap]))
    trials += at_once(at, advertised(trials))
    rows = [_row(trial.place.address, step) for trial in trials for step in trial.steps]
    errors = [trial.error for trial in trials if trial.error]
    Writer(settings, COLUMNS, Document(settings.command)).write(rows, errors)
    sys.stdout.flush()
    render_errors(errors, settings)
    return exit_code(errors)


def _row(address: Address, step: Step) -> Row:
    return {
        "address": str(address),
        "step": step.name,
        "result": "error" if step.error else "ok",
        "milliseconds": step.milliseconds,
        "found": step.error.what.removeprefix(str(address)).strip() if step.error else step.found,
    }


def of_one_cluster(trials: list[Trial]) -> list[Trial]:
    """The trials of the context's addresses. The first cluster that a broker tells of is the one that is meant: at a
    broker of another one the last step has failed, and what that one advertises is not looked at."""
    answers = [trial.metadata for trial in trials if trial.metadata]
    ours = next((answer.cluster_id for answer in answers if answer.cluster_id), None)
    if ours is None:
        return trials
    told = (broker for answer in answers if answer.cluster_id == ours for broker in answer.brokers)
    advertisers = {Address(broker.host, broker.port): broker.node_id for broker in told}
    return [_of_cluster(ours, trial, advertisers.get(trial.place.address)) for trial in trials]


def _of_cluster(ours: str, trial: Trial, advertiser: int | None) -> Trial:
    theirs = trial.metadata.cluster_id if trial.metadata else None
    if not theirs or theirs == ours:
        return trial
    error = OtherCluster(str(trial.place.address), theirs, ours, advertiser)
    return Trial(trial.place, (*trial.steps[:-1], trial.steps[-1]._replace(error=error)), None)


def advertised(trials: Iterable[Trial]) -> list[Place]:
    """The addresses that the brokers told of and that were not tried, each once."""
    tried = {trial.place.address for trial in trials}
    found: dict[Address, Place] = {}
    for answer in filter(None, (trial.metadata for trial in trials)):
        for broker in answer.brokers:
            address = Address(broker.host, broker.port)
            if address not in tried:
                found.setdefault(address, Place(address, broker.node_id, answer.cluster_id))
    return list(found.values())


def tried(place: Place, access: Access, seconds: float) -> Trial:
    """The steps at one address, as far as they go; the last one may have failed."""
    with ExitStack() as stack:
        attempt = _Attempt(place, access, time.monotonic() + seconds, stack)
        plan: list[tuple[str, Callable[[], str]]] = [("DNS", attempt.look_up), ("TCP", attempt.connect)]
        if access.has_tls:
            plan.append(("TLS", attempt.secure))
        if access.has_sasl:
            plan.append(("SASL", attempt.log_in))
        plan += [("ApiVersions", attempt.ask_versions), ("Metadata", attempt.ask_brokers)]
        steps: list[Step] = []
        for name, act in plan:
            steps.append(_timed(name, act, place.address))
            if steps[-1].error:
                break
        return Trial(place, tuple(steps), attempt.metadata)


def _timed(name: str, act: Callable[[], str], address: Address) -> Step:
    begin = time.monotonic()
    found, failed = "", None
    try:
        found = act()
    except Exception as error:
        failed = trouble(address, error)
    return Step(name, round((time.monotonic() - begin) * 1000), found, failed)


class _Attempt:
    """Each method needs those before it, and returns what it found, for a person."""

    def __init__(self, place: Place, access: Access, deadline: float, stack: ExitStack) -> None:
        self._address, _, self._cluster_id = place
        self._access = access
        self._deadline = deadline
        self._stack = stack
        self.metadata: MetadataResponse | None = None
        self._socket: socket.socket
        self._opened: Connection | None = None

    def look_up(self) -> str:
        places = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        return ", ".join(dict.fromkeys(str(place[4][0]) for place in places))

    def connect(self) -> str:
        """Connects to the first of the host's addresses that accepts, as other commands do."""
        self._socket = socket.create_connection(self._address, connect_seconds(self._left(), alone=True))
        self._stack.callback(lambda: self._socket.close())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return f"connected to {self._socket.getpeername()[0]}"

    def secure(self) -> str:
        from kctl.reach.login import secure

        self._socket = secured = secure(self._socket, self._address.host, self._access, self._deadline)
        until_ms = self._connection.certificate_until_ms()
        assert until_ms is not None
        left = duration_text(until_ms - int(time.time() * 1000))
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(until_ms // 1000))
        return f"{secured.version()}, certificate valid until {when} ({left} left)"

    def log_in(self) -> str:
        from kctl.reach.login import authenticate

        connection, host = self._connection, self._address.host
        authenticate(lambda message, version: connection.call(message, self._deadline, version), self._access, host)
        who = f" as {self._access.username}" if self._access.username else ""
        return f"{self._access.mechanism}{who}"

    def ask_versions(self) -> str:
        ask_versions(self._connection, self._deadline)
        return f"{len(self._connection.versions)} APIs"

    def ask_brokers(self) -> str:
        from kafkad.wire.messages.metadata import MetadataRequest

        answer = self._connection.call(MetadataRequest(topics=[]), self._deadline)
        ensure_same(self._cluster_id, answer.cluster_id, self._address)
        self.metadata = answer
        brokers = ", ".join(f"{b.node_id} at {Address(b.host, b.port)}" for b in answer.brokers)
        return f"cluster {answer.cluster_id}, brokers: {brokers}"

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            self._opened = Connection(self._socket, self._address, self._access.client_id)
        return self._opened

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.001)
