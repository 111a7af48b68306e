"""Asking many brokers for the parts of an answer that each of them has, again where that helps.

A round asks everybody concerned at once. What is wrong for the moment only (a leader that moved, a coordinator that
loads, a broker that does not answer before another one takes over from it) is worth another round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from kafkad.errors import ErrorCode
from kafkad.wire.schema import Request
from kctl.errors import Disconnected, KctlError, failure

K = TypeVar("K")
R = TypeVar("R")
V = TypeVar("V")

BACKOFF_SECONDS = 0.1
_ELECTION_SECONDS = 1.0
"""Time to wait for a partition without a leader, or with one that does not know yet what is committed: an election
takes less, replicas that are down take much more."""
_RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Rounds(Generic[K, R, V]):
    """`find` says which broker to ask about each key, `build` makes its request, `read` takes its answer apart.

    A broker that does not answer is asked again, or who took over from it, while it is worth waiting for. What was
    waited for in vain is in `given_up`, and asked only once by the next rounds that have the same.

    A broker whose answer was lost may have done what it was asked: the errors of its keys are `in_doubt` from then on,
    and `done` are the codes that say of a repetition that it was.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[list[K]], Mapping[K, int | KctlError]],
        build: Callable[[list[K]], Request[R]],
        read: Callable[[R], Iterable[tuple[K, int, V]]],
        timeout: float,
        is_worth_waiting_for: Callable[[int], bool] = lambda broker: True,
        given_up: set[K] | None = None,
        done: Collection[int] = (),
    ) -> None:
        self._name = name
        self._find = find
        self._build = build
        self._read = read
        self._timeout = timeout
        self._is_worth_waiting_for = is_worth_waiting_for
        self._given_up: set[K] = set() if given_up is None else given_up
        self._done = done
        self._doubtful: set[K] = set()
        self._results: dict[K, V | KctlError] = {}

    def run(
        self,
        keys: Iterable[K],
        call_each: Callable[[dict[int, Request[R]]], dict[int, R | KctlError]],
        clock: Callable[[], float],
        pause: Callable[[], None],
    ) -> dict[K, V | KctlError]:
        """The result for each key, in their order."""
        order = list(dict.fromkeys(keys))
        pending = order
        begin = clock()
        while pending:
            patience = self._round(pending, call_each)
            waited = clock() - begin
            self._given_up.difference_update(key for key in pending if key not in patience)
            self._given_up.update(key for key in patience if waited >= patience[key])
            pending = [key for key in pending if key in patience and key not in self._given_up]
            if pending:
                pause()
        return {key: self._results[key] for key in order}

    def _round(
        self, keys: list[K], call_each: Callable[[dict[int, Request[R]]], dict[int, R | KctlError]]
    ) -> dict[K, float]:
        """For how long after the first round each key is worth another one; none for those that are done."""
        at_broker, patience = self._places(keys)
        answers = call_each({broker: self._build(asked) for broker, asked in at_broker.items()})
        for broker, answer in answers.items():
            if isinstance(answer, KctlError):
                self._results |= dict.fromkeys(at_broker[broker], answer)
                if answer.in_doubt:
                    self._doubtful.update(at_broker[broker])
                if isinstance(answer, Disconnected) and self._is_worth_waiting_for(broker):
                    patience |= dict.fromkeys(at_broker[broker], self._timeout)
                continue
            for key, told, value in self._read(answer):
                code = 0 if told in self._done and key in self._doubtful else told
                self._results[key] = self._failure(key, code, value) if code else value
                if code in _RETRIABLE:
                    patience[key] = self._timeout
                elif code == ErrorCode.OFFSET_NOT_AVAILABLE:
                    patience[key] = min(self._timeout, _ELECTION_SECONDS)
        for key in keys:  # a broker that leaves out what it was asked for must not hang anybody
            self._results.setdefault(key, KctlError(f'{self._name} "{key}": missing from the answer of the broker'))
        return patience

    def _places(self, keys: list[K]) -> tuple[dict[int, list[K]], dict[K, float]]:
        at_broker: dict[int, list[K]] = {}
        patience: dict[K, float] = {}
        for key, place in self._find(keys).items():
            if isinstance(place, KctlError):
                self._results[key] = place
                if place.code == ErrorCode.LEADER_NOT_AVAILABLE.name:
                    patience[key] = min(self._timeout, _ELECTION_SECONDS)
                elif place.code == ErrorCode.COORDINATOR_NOT_AVAILABLE.name:
                    patience[key] = self._timeout
            else:
                at_broker.setdefault(place, []).append(key)
        return at_broker, patience

    def _failure(self, key: K, code: int, value: V) -> KctlError:
        error = failure(code, f'{self._name} "{key}"', value if isinstance(value, str) else None)
        error.in_doubt = key in self._doubtful
        return error
