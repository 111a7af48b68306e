"""The classic groups that this broker coordinates, wherever among the partitions of `__consumer_offsets` they are kept.

Who joins or syncs is answered by its `respond`; a refusal to serve the group at all is raised as KafkaError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from kafkad.config import Config
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import Description, Join, Leaving, State, Sync
from kafkad.group.group import GroupSettings
from kafkad.group.lag import READ_AT_ONCE, EndOf, lag_families
from kafkad.group.machine import GroupMachine, OnEnd
from kafkad.metrics import PAUSE, Family, counters, gauges
from kafkad.shard import Coordination

CLASSIC = "classic"
_METRICS = "kafka_server_group_coordinator_metrics"


def group_settings(config: Config) -> GroupSettings:
    return GroupSettings(
        rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        max_size=config.int("group.max.size"),
    )


class Listed(NamedTuple):
    name: str
    protocol_type: str
    state: State


class GroupCoordinator:
    def __init__(self, coordination: Coordination[GroupMachine]) -> None:
        self._coordination = coordination

    def join(self, group: str, join: Join) -> None:
        self._named(group).join(group, join)

    def sync(self, group: str, sync: Sync) -> None:
        """While the group is being loaded its rebalance is lost: the member is to join again."""
        try:
            machine = self._named(group)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, error.message or "") from None
            raise
        machine.sync(group, sync)

    def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """HOT. While the group is being loaded any member is taken for alive."""
        try:
            machine = self._named(group)
        except KafkaError as error:
            return ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
        return machine.heartbeat(group, member_id, instance_id, generation)

    def leave(self, group: str, leaving: Leaving) -> ErrorCode:
        return self._named(group).leave(group, leaving)

    def check_served(self, group: str) -> None:
        """KafkaError where this broker can do nothing for that group now."""
        found = self._named(group).groups.get(group)
        if found is not None and found.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def describe(self, group: str) -> Description | None:
        """None for a group that does not exist."""
        found = self._coordination.shard(group).machine.group(group)
        return None if found is None else found.describe()

    def delete(self, group: str, on_end: OnEnd) -> None:
        self._coordination.shard(group).machine.delete(group, on_end)

    @property
    def loading(self) -> bool:
        """True while a partition is loading: a list of groups may be incomplete."""
        return self._coordination.loading

    def groups(self, states: Collection[str], types: Collection[str]) -> Iterator[Listed | None]:
        """Those in one of the states and of one of the types, in letters of any size; no filter is every group. None
        for one that is not among them, or gone since."""
        wanted = {state.lower() for state in states}
        if types and CLASSIC not in {kind.lower() for kind in types}:
            return
        for machine in self._machines():
            for name in machine.names():
                group = machine.groups.get(name)
                state = State.EMPTY if group is None else group.state
                if (group is None and name not in machine.offsets) or (wanted and state.value.lower() not in wanted):
                    yield None
                else:
                    yield Listed(name, (group and group.protocol_type) or "", state)

    def collect(self) -> Iterator[Family | None]:
        """Under the names that JMX exporters give Kafka's metrics."""
        states: Counter[State] = Counter()
        for read, state in enumerate((state for machine in self._machines() for state in machine.states()), 1):
            states[state] += 1
            if not read % READ_AT_ONCE:
                yield PAUSE
        values = {
            "numoffsets": sum(len(machine.offsets) for machine in self._machines()),
            "numgroups": states.total(),
            **{f"numgroups{state.value.lower()}": states[state] for state in State},
        }
        yield from gauges("kafka_coordinator_group_groupmetadatamanager", values, "Groups and their offsets")
        completed = {"group_completed_rebalance": sum(machine.generations for machine in self._machines())}
        yield from counters(_METRICS, completed, "Groups")
        yield from self._coordination.load_times.collect(_METRICS)

    def lag(self, end_of: EndOf, limit: int) -> Iterator[Family | None]:
        yield from lag_families(self._machines(), end_of, limit)

    def _named(self, group: str) -> GroupMachine:
        """Members need a group with a name; commits do not (Kafka allows them for the sake of old clients)."""
        if not group:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group that has members needs an id")
        return self._coordination.shard(group).machine

    def _machines(self) -> Iterator[GroupMachine]:
        return (shard.machine for shard in self._coordination.shards())
