"""Logs with any history of leaders agree again by what a leader answers about epochs (KIP-279, KIP-595)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.api.fetch import diverging
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files
from kafkad.replica.following import cut_offset


class Replica:
    """A log as the epochs of its records."""

    def __init__(self, directory: str) -> None:
        self.records: list[int] = []
        self.epochs = LeaderEpochs(directory, Files())

    def lead(self, epoch: int, count: int) -> None:
        self.epochs.assign(epoch, len(self.records))
        self.records += [epoch] * count

    def follow(self, leader: Replica, most: int) -> int:
        """Up to `most` of the leader's records; the number of rounds it took to agree with it."""
        rounds = 0
        while (epoch := self.epochs.latest) is not None:
            parted = diverging(leader.epochs, len(leader.records), epoch, len(self.records))
            if parted is None:
                break
            rounds += 1
            self.cut(cut_offset(self.epochs, len(self.records), *parted))
        assert leader.records[: len(self.records)] == self.records, "no record that the leader does not have"
        for record in leader.records[len(self.records) :][:most]:
            if record != self.epochs.latest:
                self.epochs.assign(record, len(self.records))
            self.records.append(record)
        return rounds

    def cut(self, end: int) -> None:
        del self.records[end:]
        self.epochs.truncate_from_end(end)


REIGN = st.tuples(st.integers(0, 2), st.integers(0, 4), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6))))


@given(st.lists(REIGN, max_size=12))
@settings(max_examples=100, deadline=None)
def test_whoever_led_before_a_follower_ends_with_the_leaders_records(
    reigns: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        replicas = []
        for number in range(3):
            (Path(directory) / str(number)).mkdir()
            replicas.append(Replica(str(Path(directory) / str(number))))
        for epoch, (chosen, count, copies) in enumerate([*reigns, (0, 1, [(1, 1000), (2, 1000)])]):
            leader = replicas[chosen]
            leader.lead(epoch, count)
            for follower, most in copies:
                if follower != chosen:
                    common = _common(replicas[follower].records, leader.records)
                    rounds = replicas[follower].follow(leader, most)
                    assert len(replicas[follower].records) >= common, "and nothing is cut off that the leader has"
                    assert rounds <= len(reigns) + 1
        assert replicas[0].records == replicas[1].records == replicas[2].records
        assert replicas[1].epochs.entries == replicas[2].epochs.entries


def _common(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
