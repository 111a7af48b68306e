"""The internal topics of coordinators, with the settings that Kafka gives them when it creates them on first use."""

from __future__ import annotations

from kafkad.config import Config
from kafkad.controller.topics import NewTopic
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC


def internal_topic(name: str, config: Config, brokers: int) -> NewTopic:
    """The topic to create. `name` is one of `names.INTERNAL_TOPICS`, `brokers` the number of live brokers."""
    return {GROUPS_TOPIC: _groups, TRANSACTIONS_TOPIC: _transactions}[name](config, brokers)


def _groups(config: Config, brokers: int) -> NewTopic:
    return NewTopic(
        name=GROUPS_TOPIC,
        partitions=config.int("offsets.topic.num.partitions"),
        replication_factor=_replicas("offsets.topic.replication.factor", config, brokers),
        configs={
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
        },
    )


def _transactions(config: Config, brokers: int) -> NewTopic:
    return NewTopic(
        name=TRANSACTIONS_TOPIC,
        partitions=config.int("transaction.state.log.num.partitions"),
        replication_factor=_replicas("transaction.state.log.replication.factor", config, brokers),
        configs={
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
            "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
    )


def _replicas(setting: str, config: Config, brokers: int) -> int:
    """Kafka's default of 3 is met as far as the cluster allows; a number that somebody has set is met or refused."""
    wanted = config.int(setting)
    return wanted if config.is_set(setting) else max(min(wanted, brokers), 1)
