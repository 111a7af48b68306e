"""The line of those whose fetches are over a quota that they share: whoever is refused comes again when it is its turn.

Kafka gives the bytes of a refused fetch back, so that all who were refused come back at once for what is there for one.
Here they stay taken, as a place in line. Pure: times come from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from kafkad.security.quotas.clients import Meter


class Turn:
    """A place in line: the amount is taken already, and may be had from `due_ms` on."""

    __slots__ = ("amount", "due_ms", "line")

    def __init__(self, line: Line, amount: float, due_ms: float) -> None:
        self.line = line
        self.amount = amount
        self.due_ms = due_ms

    def leave(self) -> None:
        """Nobody will come."""
        self.line.forget(self)


class Line:
    """Of one meter, to which it refers weakly: many meters are forgotten at once, and in circles they would stay until
    all of the broker's objects are looked through."""

    __slots__ = ("_now_ms", "_of", "_turns")

    def __init__(self, meter: Meter) -> None:
        self._of = ref(meter)
        self._turns: dict[Turn, None] = {}
        """In their order."""
        self._now_ms = 0.0
        """When somebody asked last."""

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def _meter(self) -> Meter:
        meter = self._of()
        assert meter is not None, "whoever asks has it"
        return meter

    def most(self, turn: Turn | None) -> int:
        """The most that may be asked for: who has a turn gets what it has waited for, and all others so much that
        everybody in the line can have as much before it is longer than the quota's windows. One batch may always be
        more."""
        if turn is not None and turn in self._turns:
            return max(int(turn.amount), 1)
        return max(self._meter.most_at_once // (len(self._turns) + 1), 1)

    def ask(self, amount: float, now_ms: float, turn: Turn | None) -> tuple[int, Turn | None]:
        """For an amount that is no more than `most`, but for one batch. 0 milliseconds if it may be had; otherwise the
        time until it may, and the turn to come with.

        A batch that is larger than all that the quota allows at once waits until nothing is owed, and is paid for after
        it was had.
        """
        self._now_ms = now_ms
        self._forget_late()
        if turn is not None and turn in self._turns:
            if now_ms < turn.due_ms:
                return max(round(turn.due_ms - now_ms), 1), turn
            del self._turns[turn]
            self._meter.add(amount - turn.amount, now_ms)
            return 0, None
        if turn is not None:
            turn.leave()
        if amount <= self._meter.most_at_once:
            wait_ms, held = self._meter.take(amount, now_ms), amount
        else:
            wait_ms, held = self._meter.owed_ms(now_ms), 0.0
            if not wait_ms:
                self._meter.add(amount, now_ms)
        if not wait_ms:
            return 0, None
        joined = Turn(self, held, now_ms + wait_ms)
        self._turns[joined] = None
        return wait_ms, joined

    def forget(self, turn: Turn) -> None:
        if turn in self._turns:
            del self._turns[turn]
            meter = self._of()
            if meter is not None:  # else it has been forgotten, and only the turn was kept
                meter.give_back(turn.amount, self._now_ms)

    def dissolve(self) -> None:
        """The quota is another: all ask anew."""
        for turn in list(self._turns):
            self.forget(turn)

    def _forget_late(self) -> None:
        while self._turns:
            first = next(iter(self._turns))
            if self._now_ms - first.due_ms <= self._meter.patience_ms:
                return
            self.forget(first)
