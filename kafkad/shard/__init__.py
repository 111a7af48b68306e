"""The coordinator runtime: state that lives in a topic, one shard for each of its partitions that this broker leads.

A coordinator decides, and hands the records of its decision to `Shard.write`; the runtime appends them, waits until
they are committed, and then applies them. Loading a partition is the same `apply` over its log. Nothing here knows
what the records mean.
"""

from kafkad.shard.batch import NO_PRODUCER, Prepared, Repeating, TransactionalProducer, body_of
from kafkad.shard.coordination import Coordination
from kafkad.shard.shard import Machine, OnEnd, Shard, level_of_refusal

__all__ = [
    "NO_PRODUCER",
    "Coordination",
    "Machine",
    "OnEnd",
    "Prepared",
    "Repeating",
    "Shard",
    "TransactionalProducer",
    "body_of",
    "level_of_refusal",
]
