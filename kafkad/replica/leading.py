"""The leader's part of a partition: its followers, the ISR, and a change of the ISR that the controller is asked for.

It knows nothing of the log: who calls says where that ends. `Partition` keeps the high watermark.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple, Protocol

from kafkad.model import NO_EPOCH
from kafkad.replica import isr as rules
from kafkad.replica.isr import Follower, LagLimits


class IsrChange(NamedTuple):
    """An ISR that a leader asks the controller for, and what it replaces (AlterPartition)."""

    isr: tuple[int, ...]
    before: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    joining: tuple[tuple[int, int], ...] = ()
    """Followers that were not in the ISR, with the epochs of their registrations, where they said those (KIP-903): the
    controller knows of one that has lost its power since."""


class FollowerFetch(Protocol):
    """The fetch of this partition that a follower repeats."""

    def followed_ms(self, leader_epoch: int) -> float:
        """A time at which it followed in that leader epoch, or later: -inf if nothing is known of it."""

    def answer_early(self, leader_epoch: int) -> None:
        """If it waits, and its follower's next fetch can say that it follows in that leader epoch."""


class Leading:
    """One leader epoch of one partition on its leader."""

    __slots__ = ("_lag", "epoch_start", "epochs", "fetches", "followers", "isr", "one_by_one", "proposed", "refused")

    def __init__(self, isr: tuple[int, ...], followers: dict[int, Follower], epoch_start: int, lag: LagLimits) -> None:
        self.isr = isr
        self.followers = followers
        self.epoch_start = epoch_start
        """The end of the log when the epoch began: a replica must have come so far to join the ISR."""
        self.proposed: tuple[int, ...] | None = None
        """The ISR that the controller has been asked for; until it answers, either may be the true one."""
        self.refused: frozenset[int] = frozenset()
        """Followers that the controller does not let into the ISR, as while they shut down. Nobody waits for them, and
        they are not proposed again before there is a reason to believe that it would."""
        self.one_by_one = False
        """Several were proposed at once and refused: each is proposed alone, for one of them keeps no other out."""
        self.epochs: dict[int, int] = {}
        """Of the registrations of followers, as they said with their last fetches."""
        self.fetches: dict[int, FollowerFetch] = {}
        """By follower, the last that it began in this epoch."""
        self._lag = lag

    @property
    def maximal(self) -> frozenset[int]:
        return frozenset(self.isr if self.proposed is None else (*self.isr, *self.proposed))

    @property
    def _is_whole(self) -> bool:
        """True if all replicas are in sync, and nobody is asked to change that."""
        return self.proposed is None and len(self.isr) > len(self.followers)

    def fetched(self, broker: int, offset: int, start_offset: int, end_offset: int, now_ms: float) -> None:
        """A follower, one of `followers`, asked for what comes from `offset` on."""
        known = self.followers[broker]
        self.followers[broker] = rules.fetched(known, offset, start_offset, end_offset, now_ms)

    def is_followed(self, leader_epoch: int, since_ms: float) -> bool:
        """True if all others of the maximal ISR have followed in this leader epoch at that time or later: one of them
        would be the next leader, and none was by then."""
        for broker in (*self.isr, *(self.proposed or ())):
            if broker in self.followers:
                fetch = self.fetches.get(broker)
                if fetch is None or fetch.followed_ms(leader_epoch) < since_ms:
                    return False
        return True

    def answer_early(self, leader_epoch: int, since_ms: float) -> None:
        """The fetches of those in the maximal ISR that are not known to have followed since then."""
        for broker in self.maximal:
            fetch = self.fetches.get(broker)
            if fetch is not None and fetch.followed_ms(leader_epoch) < since_ms:
                fetch.answer_early(leader_epoch)

    def note_epoch(self, broker: int, epoch: int) -> bool:
        """Notes the registration by which a follower fetches; NO_EPOCH if it does not say. A new one may join again.
        False for a fetch from before the one that is known: it does not count."""
        known = self.epochs.get(broker, NO_EPOCH)
        if epoch == known:
            return True
        if NO_EPOCH < epoch < known:
            return False
        self.epochs[broker] = epoch
        self.refused -= {broker}
        return True

    def joining(self, isr: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Those that are not in the ISR yet, with the epochs of their registrations."""
        epochs = [(broker, self.epochs.get(broker, NO_EPOCH)) for broker in isr if broker not in self.isr]
        return tuple((broker, epoch) for broker, epoch in epochs if epoch != NO_EPOCH)

    def was_at_end(self, broker: int, end_offset: int, now_ms: float) -> None:
        """It fetched at that time and had everything: the log ended at `end_offset`, as its own does.

        Says nothing of one that was out of the ISR as the epoch began: it may have lost since then what it had.
        """
        known = self.followers.get(broker)
        if known is None or not rules.has_fetched(known):
            return
        if known.end_offset == known.leader_end == end_offset:
            self.followers[broker] = rules.fetched(known, end_offset, known.start_offset, end_offset, now_ms)

    def high_watermark(self, now_at: int, end_offset: int, now_ms: float, alive: Container[int]) -> int:
        """A live follower that keeps up is waited for as if it were in sync already: it is about to be."""
        followers = self.followers
        if self._is_whole:
            return rules.high_watermark(now_at, end_offset, followers, followers)
        joining = [
            broker
            for broker, follower in followers.items()
            if broker in alive
            and broker not in self.refused
            and rules.is_caught_up(follower, end_offset, now_ms, self._lag)
        ]
        return rules.high_watermark(now_at, end_offset, self.maximal, followers, joining)

    def low_watermark(self, start_offset: int, alive: Container[int]) -> int:
        """The least start of all logs of the partition, of which the leader's begins there. A follower that has not
        said where its own begins may have everything."""
        starts = (follower.start_offset for broker, follower in self.followers.items() if broker in alive)
        return min([start_offset, *starts])

    def joined_by(self, high_watermark: int, alive: Container[int]) -> tuple[int, ...] | None:
        """The ISR with the followers that have caught up; None when there are none, or a change is under way."""
        if self.proposed is not None or self._is_whole:
            return None
        joining = [
            broker
            for broker, follower in self.followers.items()
            if broker not in self.isr
            and broker not in self.refused
            and broker in alive
            and rules.may_join(follower, high_watermark, self.epoch_start, self._lag)
        ]
        if self.one_by_one:
            del joining[1:]
        return (*self.isr, *joining) if joining else None

    def kept(self, change: IsrChange) -> bool:
        """The controller has refused what was proposed. True if that means that a follower cannot join now: one that
        has registered anew since is another to it."""
        joining = frozenset(change.isr).difference(self.isr)
        self.proposed = None
        if len(joining) > 1:
            self.one_by_one = True
            return False
        said = dict(change.joining)
        joining = frozenset(each for each in joining if said.get(each, NO_EPOCH) == self.epochs.get(each, NO_EPOCH))
        known = joining <= self.refused
        self.refused |= joining
        return not known

    def forget_gone(self, alive: Container[int]) -> None:
        """Those in the ISR stay in it, and are waited for, until the controller has taken them out."""
        for broker, follower in self.followers.items():
            if broker not in alive and broker not in self.isr:
                self.followers[broker] = rules.gone(follower)

    def forget_refusals(self) -> None:
        """The controller may have reasons to decide otherwise by now."""
        self.refused = frozenset()
        self.one_by_one = False

    def left_by(self, end_offset: int, now_ms: float) -> tuple[int, ...] | None:
        """The ISR without the followers that lag; None when there are none, or a change is under way."""
        if self.proposed is not None:
            return None
        leaving = rules.lagging(self.isr, self.followers, end_offset, now_ms, self._lag)
        return tuple(broker for broker in self.isr if broker not in leaving) if leaving else None


def begin(
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    me: int,
    *,
    before: Leading | None,
    end_offset: int,
    now_ms: float,
    lag: LagLimits,
) -> Leading:
    """A leader epoch begins; `before` is the last one if this broker led in it, too.

    A replica that a reassignment takes away is waited for until it is out of the ISR: so long it may be elected.
    """
    known = before.followers if before is not None else {}
    followers = {
        broker: rules.begun(known.get(broker), broker in isr, end_offset, now_ms)
        for broker in dict.fromkeys((*replicas, *isr))
        if broker != me
    }
    leading = Leading(isr, followers, end_offset, lag)
    if before is not None:
        leading.epochs |= before.epochs
    return leading
