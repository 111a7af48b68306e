"""What brokers say of their cluster to whoever asks for it by name, as `kctl cluster describe` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker_parts.several import MEMORY, Brokers

BROKER = 4
EPOCH, ABSENT = "kafkad.controller.epoch", "kafkad.absent.brokers"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY)
    brokers.start(1, 2, 3)
    brokers.meet()
    yield brokers
    brokers.stop()


def told(brokers: Brokers, broker: int, *names: str) -> dict[str, str]:
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker), configuration_keys=list(names) or None
    )
    [result] = brokers.ended(brokers[broker].ask(DescribeConfigsRequest(resources=[resource]))).results
    return {config.name: config.value for config in result.configs}


def test_the_controllers_epoch_and_who_is_away_since_when(brokers: Brokers) -> None:
    assert told(brokers, 2, EPOCH, ABSENT) == {EPOCH: "1", ABSENT: ""}
    before_ms = brokers.clock.now_ms()
    brokers.leave(1)
    brokers.until(lambda: told(brokers, 2, EPOCH) == {EPOCH: "2"}, advance_ms=10)
    for broker in (2, 3):
        brokers.until(lambda broker=broker: told(brokers, broker, ABSENT)[ABSENT] != "", advance_ms=10)  # type: ignore[misc]
        left, since_ms = told(brokers, broker, ABSENT)[ABSENT].split("@")
        assert left == "1" and before_ms <= int(since_ms) <= brokers.clock.now_ms()
    brokers.start(1)
    brokers.until(lambda: told(brokers, 2, ABSENT)[ABSENT] == "", advance_ms=10)


def test_it_is_none_of_the_settings_of_a_broker(brokers: Brokers) -> None:
    assert not {EPOCH, ABSENT} & told(brokers, 2).keys()
