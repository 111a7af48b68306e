"""Kafka Streams 3.9 and 4.3 with `exactly_once_v2`: words are counted once, while broker and application are killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.streams import RELEASES, counting, lacking

ROUNDS = 5
INTERNAL = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(600)]


@pytest.mark.parametrize("release", RELEASES)
def test_words_are_counted_once(tmp_path: Path, release: str) -> None:
    if reason := lacking(release):
        pytest.skip(reason)
    with (
        KafkadProcess(tmp_path / "kafkad", INTERNAL) as kafkad,
        counting(release, kafkad.bootstrap, tmp_path) as words,
    ):
        for round_ in range(ROUNDS):
            words.say(f"round{round_}")
            if round_ == 2:
                words.restart()
            elif round_:
                time.sleep(0.3)  # it is in the middle of them
                kafkad.kill()
                kafkad.start()
            words.wait()
