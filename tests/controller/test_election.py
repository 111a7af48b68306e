from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from kafkad.controller import election
from kafkad.controller.election import Elected
from kafkad.model import Asked, PartitionState


def state(leader: int, *isr: int, epoch: int = 4) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=epoch, isr=isr, controller_epoch=1, partition_epoch=9)


def test_first_leader_takes_all_live_ones_in_sync() -> None:
    assert election.first_leader((3, 1, 2), {1, 2}) == Elected(1, (1, 2))
    assert election.first_leader((3,), {1, 2}) is None


def test_after_failure_the_first_live_one_in_sync_leads() -> None:
    assert election.after_failure((1, 2, 3), state(1, 1, 3), {2, 3}, unclean=False, refused={}) == Elected(3, (3,))
    assert election.after_failure((1, 2, 3), state(1, 1), {2, 3}, unclean=False, refused={}) is None
    assert election.after_failure((1, 2, 3), state(1, 1), {2, 3}, unclean=True, refused={}) == Elected(2, (2,), True)
    assert election.after_failure((1, 2, 3), state(1, 1), set(), unclean=True, refused={}) is None


def test_one_in_sync_that_refused_is_asked_again_before_others() -> None:
    after = partial(election.after_failure, (1, 2, 3))
    both = {2: Asked.IN_SYNC, 3: Asked.IN_SYNC}
    assert after(state(-1, 3), {1, 2}, unclean=True, refused=both) == Elected(3, (3,), True)
    assert after(state(-1, 3), {1, 2}, unclean=False, refused=both) is None
    assert after(state(-1, 1, 3), {3}, unclean=True, refused={1: Asked.IN_SYNC}) == Elected(3, (3,))


def test_one_that_refused_what_it_was_asked_uncleanly_comes_last_and_once() -> None:
    after = partial(election.after_failure, (1, 2, 3), unclean=True)
    assert after(state(1, 1), {3}, refused={1: Asked.UNCLEANLY}) == Elected(3, (3,), True)
    assert after(state(1, 1), set(), refused={1: Asked.UNCLEANLY, 2: Asked.IN_SYNC}) == Elected(2, (2,), True)
    assert after(state(-1, 3), {2}, refused={1: Asked.UNCLEANLY, 2: Asked.UNCLEANLY}) == Elected(1, (1,), True)
    assert after(state(-1, 3), {2}, refused={1: Asked.AS_THE_LAST, 2: Asked.UNCLEANLY}) == Elected(2, (2,), True)
    assert after(state(-1, 3), {2}, refused={1: Asked.WITH_A_PART, 2: Asked.UNCLEANLY}) == Elected(2, (2,), True)
    assert after(state(-1, 3), {2}, refused={1: Asked.AS_THE_LAST, 2: Asked.AS_THE_LAST}) is None


def test_preferred_leads_only_live_and_in_sync() -> None:
    assert election.preferred((1, 2), state(2, 2, 1), {1, 2}) == Elected(1, (2, 1))
    assert election.preferred((1, 2), state(2, 2), {1, 2}) is None
    assert election.preferred((1, 2), state(2, 2, 1), {2}) is None


def test_reassigned_takes_the_first_of_the_target() -> None:
    assert election.reassigned((3, 2), state(1, 1, 2, 3), {1, 2, 3}) == Elected(3, (1, 2, 3))
    assert election.reassigned((3, 2), state(1, 1, 2), {1, 2, 3}) == Elected(2, (1, 2))
    assert election.reassigned((3,), state(1, 1), {1, 3}) is None


def test_shutdown_moves_the_leader_and_shrinks() -> None:
    assert election.for_shutdown((1, 2, 3), state(1, 1, 2, 3), {1, 2, 3}, {1}) == Elected(2, (2, 3))
    assert election.for_shutdown((1, 2, 3), state(1, 1, 2, 3), {1, 2, 3}, {1, 2}) == Elected(3, (3,))
    assert election.for_shutdown((1,), state(1, 1), {1}, {1}) is None


def test_the_last_one_in_sync_stays_so() -> None:
    lost = election.without_replica(state(1, 1), 1, 7, unclean=False)
    assert (lost.leader, lost.isr, lost.leader_epoch, lost.controller_epoch) == (-1, (1,), 5, 7)
    assert election.without_replica(state(1, 1), 1, 7, unclean=True).isr == ()
    kept = election.without_replica(state(2, 1, 2), 1, 7, unclean=False)
    assert (kept.leader, kept.isr, kept.leader_epoch) == (2, (2,), 5)


def test_a_new_state_rests_on_the_version_it_was_decided_on() -> None:
    after = Elected(2, (2,), True).state(state(1, 1, 2), 8)
    assert after == PartitionState(
        leader=2, leader_epoch=5, isr=(2,), controller_epoch=8, partition_epoch=9, recovering=True
    )


replicas = st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True)


@given(replicas, st.data(), st.booleans())
def test_a_leader_is_live_and_in_its_isr_and_nobody_joins(
    assignment: list[int], data: st.DataObject, unclean: bool
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(assignment), min_size=1, unique=True)))
    live = data.draw(st.sets(st.integers(0, 5)))
    before = state(isr[0], *isr)
    clean = [
        election.after_failure(assignment, before, live, unclean=False, refused={}),
        election.preferred(assignment, before, live),
        election.reassigned(assignment, before, live),
        election.for_shutdown(assignment, before, live, {0}),
    ]
    for elected in clean:
        assert elected is None or (
            elected.leader in live
            and elected.leader in elected.isr
            and set(elected.isr) <= set(isr)
            and not elected.recovering
        )
    last = election.after_failure(assignment, before, live, unclean=unclean, refused={})
    assert last is None or (last.leader in live and last.leader in last.isr)
    assert (last is None) == (not live & set(isr) and not (unclean and live & set(assignment)))
