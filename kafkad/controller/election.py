"""Elections of leaders and the ISR that follows, as pure functions. Candidates come in the order of the assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafkad.model import ASKED_BY_TURNS, NO_LEADER, Asked, PartitionState


class FewestLeaders:
    """The policy `fewest-leaders` after a failure and before a shutdown: of the replicas that may lead, the one whose
    broker leads the fewest partitions. What it has elected so far counts, so that many partitions are spread evenly."""

    def __init__(self, leaders: Iterable[int]) -> None:
        """`leaders` are those of all partitions."""
        self._led = Counter(leaders)

    def order(self, replicas: Sequence[int]) -> Sequence[int]:
        return sorted(replicas, key=self._led.__getitem__)

    def elected(self, leader: int, instead_of: int) -> None:
        self._led[leader] += 1
        self._led[instead_of] -= 1


class Elected(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    recovering: bool = False

    def state(self, before: PartitionState, controller_epoch: int) -> PartitionState:
        """The next content of the partition's znode; its version is the one that the decision was based on."""
        return replace(
            before,
            leader=self.leader,
            leader_epoch=before.leader_epoch + 1,
            isr=self.isr,
            controller_epoch=controller_epoch,
            recovering=self.recovering,
        )


def first_leader(replicas: Sequence[int], live: Collection[int]) -> Elected | None:
    """The first leader of a partition that was never online: the first live replica; all live ones are in sync."""
    alive = tuple(r for r in replicas if r in live)
    return Elected(alive[0], alive) if alive else None


def after_failure(
    replicas: Sequence[int],
    state: PartitionState,
    live: Collection[int],
    *,
    unclean: bool,
    refused: Mapping[int, Asked],
    leaving: Collection[int] = (),
) -> Elected | None:
    """The first live replica in sync; with `unclean` and none in sync, any one, at the price of lost records.

    Replicas in sync that `refused` to lead come before live ones that are not in sync: they lack only their last
    records. What has refused an unclean election, too, has little or nothing: it comes last, once for each way to ask,
    and not while one that may have more is only `leaving`.
    """
    for replica in replicas:
        if replica in live and replica in state.isr:
            return Elected(replica, tuple(r for r in state.isr if r in live), state.recovering)
    if not unclean:
        return None
    reluctant = [r for r in replicas if refused.get(r) == Asked.IN_SYNC]
    in_sync = [r for r in reluctant if r in state.isr]
    alive = [r for r in replicas if r in live and r not in refused]
    gone = [] if leaving else [r for how in ASKED_BY_TURNS for r in replicas if refused.get(r) == how]
    leader = next(iter(in_sync + alive + reluctant + gone), None)
    return None if leader is None else Elected(leader, (leader,), True)


def preferred(replicas: Sequence[int], state: PartitionState, live: Collection[int]) -> Elected | None:
    """The head of the assignment, if it is live and in sync."""
    head = replicas[0]
    return Elected(head, state.isr, state.recovering) if head in live and head in state.isr else None


def reassigned(target: Sequence[int], state: PartitionState, live: Collection[int]) -> Elected | None:
    """The first of the new replicas that is live and in sync."""
    leader = next((r for r in target if r in live and r in state.isr), None)
    return None if leader is None else Elected(leader, state.isr, state.recovering)


def for_shutdown(
    replicas: Sequence[int], state: PartitionState, live: Collection[int], leaving: Collection[int]
) -> Elected | None:
    """The first live replica in sync that stays; those that leave are no longer in sync."""
    leader = next((r for r in replicas if r in live and r in state.isr and r not in leaving), None)
    if leader is None:
        return None
    return Elected(leader, tuple(r for r in state.isr if r not in leaving), state.recovering)


def without_replica(state: PartitionState, replica: int, controller_epoch: int, *, unclean: bool) -> PartitionState:
    """The state after the loss of `replica`: it neither leads nor is in sync.

    The last one in sync is kept as such, since only it has all records; unless the topic prefers any leader to none.
    """
    isr = tuple(r for r in state.isr if r != replica)
    if not isr and not unclean:
        isr = state.isr
    leader = NO_LEADER if state.leader == replica else state.leader
    return replace(
        state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr, controller_epoch=controller_epoch
    )
