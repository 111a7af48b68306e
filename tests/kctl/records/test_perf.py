from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import Exit
from kctl.records.perf.measuring import Latencies, Rate, latency_text, percentile
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.records.conftest import NewTopic, until


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = list(range(1, 1001))
    assert [percentile(ordered, share) for share in (50, 95, 99, 99.9, 100)] == [500, 950, 990, 999, 1000]
    assert percentile([7], 50) == percentile([7], 99.9) == 7


@given(st.lists(st.integers(0, 10**9), min_size=1), st.sampled_from([50.0, 95.0, 99.0, 99.9]))
def test_at_most_the_rest_is_beyond_a_percentile(samples: list[int], share: float) -> None:
    value = percentile(sorted(samples), share)
    assert sum(sample <= value for sample in samples) * 100 >= share * len(samples) - 1e-6
    assert sum(sample < value for sample in samples) * 100 < share * len(samples) + 1e-6


def filled(*microseconds: int) -> Latencies:
    latencies = Latencies()
    latencies.extend(microseconds)
    return latencies


def test_summary() -> None:
    assert filled(1000, 3000, 2500).summary() == {
        "avg_ms": 2.167, "p50_ms": 2.5, "p95_ms": 3.0, "p99_ms": 3.0, "p999_ms": 3.0, "max_ms": 3.0,
    }  # fmt: skip
    assert set(Latencies().summary().values()) == {None}
    assert latency_text(Latencies().summary()) == "no latency was measured"
    text = "2.00 ms avg latency, 3.00 ms max latency, 1.00 ms 50th, 3.00 ms 95th, 3.00 ms 99th, 3.00 ms 99.9th"
    assert latency_text(filled(1000, 3000).summary()) == text


def test_histogram() -> None:
    lines = list(filled(*[150] * 4, *[900] * 8, 7000).histogram(8))
    assert lines == [
        "   0.2 ms  ████      4",
        "   0.5 ms            0",
        "     1 ms  ████████  8",
        "     2 ms            0",
        "     5 ms            0",
        "    10 ms  █         1",
    ]
    assert list(Latencies().histogram(8)) == ["   0.1 ms            0"]


def test_rate() -> None:
    rate = Rate(1000, 2_000_000, 4.0)
    assert rate.told("sent") == "1,000 records sent, 250.0 records/s (0.50 MB/s)"
    assert Rate(0, 0, 0).fields()["records_per_second"] == 0


def test_produce(on_broker: Kctl) -> None:
    ran = on_broker("perf", "produce", "-n", "5000", "--record-size", "200", "--partitions", "3", "-o", "json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)["items"]
    assert row["records"] == 5000
    assert row["mb_per_second"] == pytest.approx(5000 * 200 / 1e6 / row["seconds"], rel=0.05)
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["p999_ms"] <= row["max_ms"]
    assert row["topic"] not in on_broker("topics", "list", "-o", "name").out


def test_produce_at_a_rate_into_a_topic_that_stays(on_broker: Kctl, topic: NewTopic) -> None:
    name = topic(2)
    ran = on_broker("perf", "produce", "--topic", name, "-n", "100", "--rate", "400", "--record-size", "10")
    assert ran.code == 0
    assert ran.out.startswith("100 records sent, ")
    assert "ms avg latency" in ran.out
    lines = on_broker("consume", name, "-f", "%S\\n").out.split()
    assert lines == ["10"] * 100


def test_warm_up_does_not_count(on_broker: Kctl) -> None:
    words = ("--duration", "600ms", "--warm-up", "300ms", "--rate", "500", "-o", "json")
    ran = on_broker("perf", "produce", *words)
    (row,) = json.loads(ran.out)["items"]
    assert row["records"] < 300


def test_consume(on_broker: Kctl, topic: NewTopic) -> None:
    ran = on_broker("perf", "consume", "-n", "3000", "--record-size", "100", "-o", "json")
    (row,) = json.loads(ran.out)["items"]
    assert (ran.code, row["records"]) == (0, 3000)
    name = topic(1)
    on_broker("produce", name, "--value", "x")
    assert on_broker("perf", "consume", "--topic", name).out.startswith("1 records read, ")


def test_latency(on_broker: Kctl) -> None:
    ran = on_broker("perf", "latency", "-n", "20", "--warm-up", "2", "-o", "json")
    (row,) = json.loads(ran.out)["items"]
    assert (ran.code, row["records"]) == (0, 20)
    assert 0 < row["p50_ms"] <= row["max_ms"]


@pytest.mark.parametrize("words", ["produce --duration 1h", "consume -n 1000000000", "latency --duration 1h"])
def test_ctrl_c_ends_it_with_the_numbers_until_then(broker: KafkadProcess, on_broker: Kctl, words: str) -> None:
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "perf", *words.split(), "-o", "json"]

    def made() -> list[str]:
        return [name for name in on_broker("topics", "list", "-o", "name").out.split() if name.startswith("kctl-perf-")]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        until(lambda: made() != [])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == Exit.INTERRUPTED
        (row,) = json.loads(process.stdout.read())["items"]
        assert row["records"] >= 0
        assert process.stderr.read().splitlines()[-1] == "interrupted: these are the numbers until then"
    assert made() == [], "its topic is removed"


@pytest.mark.parametrize("verb", ["produce", "consume", "latency"])
def test_topic_that_is_not_there(on_broker: Kctl, verb: str) -> None:
    ran = on_broker("perf", verb, "--topic", "no-such-topic")
    assert ran.code == 3
    assert 'topic "no-such-topic" does not exist' in ran.err
