"""The partitions of a plan, each with its state: done, moving, or still waiting. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.partitions.cluster_model import Partition
from kctl.partitions.reassignment_json import ANY, Place
from kctl.partitions.requests import Active, Directory
from kctl.partitions.throttle_settings import Transfer
from kctl.reach.log_dirs import LogDir

DONE = "done"
MOVING = "moving"
WAITING = "waiting"
ELSEWHERE = "moving elsewhere"


class PlanEntry(NamedTuple):
    """`partition` is as it will be without this plan; `directories` are those that its replicas are not yet in, and
    `here` those that they are in."""

    partition: Partition
    place: Place
    state: str
    active: Active | None
    directories: dict[Directory, str]
    here: dict[int, str]

    @property
    def now(self) -> tuple[int, ...]:
        """The replicas that have, or should have, all of the data."""
        return self.active.origin if self.active else self.partition.replicas

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.place.replicas if broker not in self.now)

    @property
    def shifting(self) -> tuple[int, ...]:
        """Brokers that move their replica from one directory to another."""
        return tuple(replica.broker for replica in self.directories if replica.broker in self.now)

    @property
    def copy_bytes(self) -> int:
        return (len(self.added) + len(self.shifting)) * self.partition.size

    @property
    def transfer(self) -> Transfer:
        return Transfer(self.partition.name, self.now, self.added, self.shifting)

    @property
    def before(self) -> Place:
        """The way back."""
        if not self.shifting:
            return Place(self.now)
        return Place(self.now, tuple(self.here.get(broker, ANY) for broker in self.now))


def plan_entry(
    partition: Partition,
    place: Place,
    active: Active | None,
    here: Mapping[Directory, str],
    coming: Mapping[Directory, str],
) -> PlanEntry:
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
    mine = {
        broker: here[where] for broker in partition.replicas if (where := Directory(partition.name, broker)) in here
    }
    return PlanEntry(partition, place, state, active, directories, mine)


def located(directories: list[LogDir], *, future: bool = False) -> dict[Directory, str]:
    """The log directory in which each replica is, or to which it is on its way."""
    return {
        Directory(TopicPartition(replica.topic, replica.partition), replica.broker): replica.directory
        for directory in directories
        for replica in directory.replicas
        if replica.future == future
    }
