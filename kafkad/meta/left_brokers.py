"""Finds partitions on brokers of this host that are not started any more: kafkad.brokers was higher before."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from kafkad.config.several import DIRECTORY
from kafkad.meta.readable import readable
from kafkad.meta.store import MetaStore, NoNode
from kafkad.meta.znodes import TOPICS, Topic
from kafkad.names import TopicPartition, some


async def partitions_left_behind(store: MetaStore, log_dirs: Sequence[str], brokers: Collection[int]) -> str | None:
    """The problem, in words, where a broker with a directory below `log_dirs` is not one of `brokers` and has
    partitions. The store is only read when there is such a directory."""
    away = _with_directories(log_dirs) - set(brokers)
    if not away:
        return None
    held = await _held(store, away)
    if not held:
        return None
    told = "; ".join(f"broker {broker} has {some(partitions)}" for broker, partitions in sorted(held.items()))
    drain = f"kctl partitions drain {' '.join(map(str, sorted(held)))} --rf {max(1, len(brokers))}"
    return (
        f"partitions are on brokers of this host that would not be started: {told}. Start as many brokers as before, "
        f"move the replicas away ({drain}, then kctl partitions apply), then start fewer"
    )


def _with_directories(log_dirs: Iterable[str]) -> set[int]:
    found: set[int] = set()
    for path in log_dirs:
        try:
            names = os.listdir(os.path.join(path, DIRECTORY))
        except OSError:
            continue  # there is none, or the broker says itself what is wrong with the directory
        found |= {int(name) for name in names if name.isdecimal()}
    return found


async def _held(store: MetaStore, brokers: Collection[int]) -> dict[int, list[str]]:
    try:
        names = await store.children(TOPICS)
    except NoNode:
        return {}
    held: dict[int, list[str]] = {}
    for name, node in zip(names, await store.get_many([Topic.path(name) for name in names]), strict=True):
        topic = None if node is None else readable(Topic.path(name), partial(Topic.decode, node[0]))
        for partition, assignment in sorted(topic.partitions.items()) if topic is not None else ():
            for broker in set(assignment.replicas) & set(brokers):
                held.setdefault(broker, []).append(str(TopicPartition(name, partition)))
    return held
