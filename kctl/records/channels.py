"""Connections for who keeps every broker busy: one request on its way to each, answers taken as they come.

They are not the session's, so that nothing else that is asked meanwhile gets in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from select import select
from typing import Any, Generic, NamedTuple, TypeVar

from kafkad.wire.schema import Request
from kctl.errors import Disconnected, KctlError
from kctl.reach.connection import Connection
from kctl.reach.session import Session

T = TypeVar("T")
R = TypeVar("R")


class Answer(NamedTuple, Generic[T, R]):
    broker: int
    tag: T
    """The value that the caller gave with the request."""
    response: R | KctlError
    sent: bool = True
    """False when the broker certainly has not got the request as a whole."""


class _Waiting(NamedTuple, Generic[T]):
    tag: T
    deadline: float


class Channels(Generic[T, R]):
    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._open: dict[int, Connection] = {}
        self._waiting: dict[int, _Waiting[T]] = {}
        self._refused: list[Answer[T, R]] = []

    def is_busy(self, broker: int) -> bool:
        return broker in self._waiting

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._refused)

    def send(
        self,
        broker: int,
        build: Callable[[Connection], Request[R]],
        tag: T,
        seconds: float,
        version: int | None = None,
    ) -> None:
        """Sends a request; `wait` returns an error in sending it, as an answer. `seconds`: how long one may take."""
        try:
            connection = self._connection(broker)
            connection.send(build(connection), version)
        except KctlError as error:
            self.forget(broker)
            self._refused.append(Answer(broker, tag, error, sent=False))
        else:
            self._waiting[broker] = _Waiting(tag, self._clock() + seconds)

    def tell(self, broker: int, build: Callable[[Connection], Request[Any]]) -> None:
        """A request that is never answered. KctlError when it could not go out."""
        try:
            connection = self._connection(broker)
            connection.tell(build(connection))
        except KctlError:
            self.forget(broker)
            raise

    def wait(self, seconds: float) -> list[Answer[T, R]]:
        """The answers there are, at once if there are some, else after as long as this at most."""
        answers, self._refused = self._refused, []
        now = self._clock()
        if self._waiting:
            first = min(waiting.deadline for waiting in self._waiting.values())
            patience = 0.0 if answers else max(min(seconds, first - now), 0.0)
            brokers = {self._open[broker].fileno(): broker for broker in self._waiting}
            readable, _, _ = select(brokers, [], [], patience)
            answers += [self._received(brokers[descriptor]) for descriptor in readable]
        elif seconds > 0 and not answers:
            time.sleep(seconds)
        now = self._clock()
        for broker in [broker for broker, waiting in self._waiting.items() if waiting.deadline <= now]:
            error = Disconnected(f"broker {self._open[broker].address} did not answer in time")
            answers.append(Answer(broker, self._waiting[broker].tag, error))
            self.forget(broker)
        return answers

    def _received(self, broker: int) -> Answer[T, R]:
        tag = self._waiting.pop(broker).tag
        try:
            return Answer(broker, tag, self._open[broker].receive(self._clock() + self._session.settings.timeout))
        except KctlError as error:
            self.forget(broker)
            return Answer(broker, tag, error)

    def _connection(self, broker: int) -> Connection:
        connection = self._open.get(broker)
        if connection is None:
            connection = self._open[broker] = self._session.connect(broker)
        return connection

    def forget(self, broker: int) -> None:
        """Close the connection; what it waits for will not come."""
        self._waiting.pop(broker, None)
        if connection := self._open.pop(broker, None):
            connection.close()

    def close(self) -> None:
        for broker in list(self._open):
            self.forget(broker)
