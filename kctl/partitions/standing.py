"""How the partitions of a plan stand: what is done, what moves, what is still to begin. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.partitions.board import Partition
from kctl.partitions.plan_file import Place
from kctl.partitions.reassignments import Active, Directory
from kctl.partitions.throttling import Transfer
from kctl.sizes import LogDir

DONE = "done"
MOVING = "moving"
WAITING = "waiting"
ELSEWHERE = "moving elsewhere"


class Standing(NamedTuple):
    """`partition` is as it will be without this plan; `directories` are those that its replicas are not yet in."""

    partition: Partition
    place: Place
    state: str
    active: Active | None
    directories: dict[Directory, str]

    @property
    def now(self) -> tuple[int, ...]:
        """The replicas that have, or should have, all of the data."""
        return self.active.origin if self.active else self.partition.replicas

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.place.replicas if broker not in self.now)

    @property
    def copy_bytes(self) -> int:
        return len(self.added) * self.partition.size

    @property
    def transfer(self) -> Transfer:
        shifting = tuple(replica.broker for replica in self.directories if replica.broker in self.now)
        return Transfer(self.partition.name, self.now, self.added, shifting)


def standing(
    partition: Partition,
    place: Place,
    active: Active | None,
    here: Mapping[Directory, str],
    coming: Mapping[Directory, str],
) -> Standing:
    """`here` and `coming`: the log directories that replicas are in and on their way to."""
    directories = {
        replica: path
        for broker, path in place.directories().items()
        for replica in [Directory(partition.name, broker)]
        if here.get(replica) != path
    }
    if active:
        state = MOVING if active.target == place.replicas else ELSEWHERE
    elif partition.replicas != place.replicas:
        state = WAITING
    elif not directories:
        state = DONE
    else:
        state = MOVING if all(coming.get(replica) == path for replica, path in directories.items()) else WAITING
    return Standing(partition, place, state, active, directories)


def located(directories: list[LogDir], *, future: bool = False) -> dict[Directory, str]:
    """The log directory in which each replica is, or to which it is on its way."""
    return {
        Directory(TopicPartition(replica.topic, replica.partition), replica.broker): replica.directory
        for directory in directories
        for replica in directory.replicas
        if replica.future == future
    }
