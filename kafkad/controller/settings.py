"""What the controller is set to do: as the broker's configuration has it, read anew where it may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kafkad.meta.znodes import Topic


async def nothing_to_load(topics: Iterable[str]) -> None:
    pass


KnownTopic = Callable[[str, bytes], Topic | None]


class TopicDefaults(NamedTuple):
    """Of topics that are created. `placement_start` fixes where partition 0 goes; None is Kafka's random place."""

    partitions: int = 1
    replication_factor: int = 1
    placement_start: int | None = None


class Balance(NamedTuple):
    """Schedule of the automatic leader rebalance: for brokers that lack more than `percentage` of their leaderships."""

    interval_ms: int = 300_000
    percentage: int = 10


class Patience(NamedTuple):
    """How a controller watches that brokers answer."""

    silent_ms: float
    """After so long a registered broker that does not answer counts as dead."""
    look_ms: float
    """So often brokers are looked at, and idle ones sent something to answer."""

    @classmethod
    def of(cls, lag_ms: float, session_ms: float) -> Patience:
        """Longer than the session of a dead broker lasts. After two looks a broker is not heard any more: before a
        leader that is cut off notices that its followers lag."""
        silent_ms = max(lag_ms / 2, session_ms * 4 / 3)
        return cls(silent_ms, min(silent_ms, lag_ms) / 8)


class ControllerSettings(NamedTuple):
    """`listener` is the one that brokers use among themselves. `unclean` tells whether a topic would rather have any
    leader than none, as soon as `load_configs` has read the settings of topics of which this broker has no replica;
    `fewest_leaders` tells whether elections follow that policy. Brokers that do not answer for `patience` count as
    dead; None where there is only this one. Topics that were `left_alone` in log directories have one of these each.
    `known_topic` is asked for the topic of a name and a node, which the start may have decoded already."""

    broker: int
    unclean: Callable[[str], bool]
    listener: str | None = None
    topics: Callable[[], TopicDefaults] = TopicDefaults
    balance: Balance | None = None
    patience: Patience | None = None
    load_configs: Callable[[Iterable[str]], Awaitable[None]] = nothing_to_load
    fewest_leaders: Callable[[], bool] = lambda: False
    deletes_topics: Callable[[], bool] = lambda: True
    left_alone: Mapping[str, str] = MappingProxyType({})
    known_topic: KnownTopic = lambda name, node: None
