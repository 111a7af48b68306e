"""Probes, quantiles and the Prometheus text; names as the JMX exporter's Kafka configuration makes them."""

import re
from random import Random

import pytest

from kafkad.metrics import (
    GAUGE,
    PAUSE,
    QUANTILES,
    Family,
    IdleShare,
    RecentRate,
    Registry,
    RequestProbe,
    TopicProbes,
    counters,
    gauges,
    idle_families,
    names_of,
    process_families,
    request_families,
)

LINE = re.compile(r'(#.*|[a-z_:][a-z0-9_:]*(\{([a-zA-Z]+="([^"\\]|\\.)*",?)+\})? -?[0-9.e+-]+)')


def text(*families: Family) -> str:
    registry = Registry()
    registry.add(lambda: families)
    return registry.collect()


def samples(rendered: str) -> dict[str, float]:
    lines = [line for line in rendered.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_topics_have_the_names_that_dashboards_ask_for() -> None:
    probes = TopicProbes()
    probes["orders"].messages_in += 3
    probes["orders"].bytes_in += 300
    probes["other"].bytes_in += 5
    found = samples(text(*probes.collect()))
    assert found["kafka_server_brokertopicmetrics_messagesin_total"] == 3
    assert found['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 3
    assert found["kafka_server_brokertopicmetrics_bytesin_total"] == 305
    assert found['kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}'] == 0
    families = {name.partition("{")[0].removeprefix("kafka_server_brokertopicmetrics_") for name in found}
    assert {name for name in families if name.endswith("_total")} == {
        "messagesin_total",
        "bytesin_total",
        "bytesout_total",
        "bytesrejected_total",
        "failedproducerequests_total",
        "failedfetchrequests_total",
        "totalproducerequests_total",
        "totalfetchrequests_total",
    }


def test_a_deleted_topic_stays_in_the_sum() -> None:
    probes = TopicProbes()
    probes["gone"].bytes_in += 7
    probes.forget("gone")
    probes.forget("never seen")
    found = samples(text(*probes.collect()))
    assert found["kafka_server_brokertopicmetrics_bytesin_total"] == 7
    assert not any("gone" in name for name in found)


def test_requests_have_counts_errors_and_quantiles() -> None:
    produce, idle = RequestProbe("Produce"), RequestProbe("Fetch")
    for us in range(1, 1001):
        produce.record(us * 100)
    produce.error("NOT_LEADER_OR_FOLLOWER")
    produce.error("NOT_LEADER_OR_FOLLOWER")
    found = samples(text(*request_families([produce, idle], now_s=0.0)))
    assert found['kafka_network_requestmetrics_requests_total{request="Produce"}'] == 1000
    assert found['kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER"}'] == 2
    assert found['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 1000
    assert found['kafka_network_requestmetrics_totaltimems_sum{request="Produce"}'] == pytest.approx(50_050)
    median = found['kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50"}']
    assert median == pytest.approx(50, rel=0.07)
    assert not any("Fetch" in name for name in found)
    idle.record(100)
    found = samples(text(*request_families([idle], now_s=0.0)))
    for name in ("Fetch", "FetchConsumer"):
        assert found[f'kafka_network_requestmetrics_requests_total{{request="{name}"}}'] == 1


def test_quantiles_are_close_over_nine_decades() -> None:
    random = Random(3)
    times = sorted(int(10 ** random.uniform(0, 9)) for _ in range(5000))
    probe = RequestProbe("Fetch")
    for us in times:
        probe.record(us)
    for (_, share), found_ms in zip(QUANTILES, probe.quantiles_ms(0.0), strict=True):
        exact_us = times[min(int(share * len(times)), len(times) - 1)]
        assert found_ms * 1000 == pytest.approx(exact_us, rel=0.08)


@pytest.mark.parametrize("us", [0, 1, 15, 16, 17, 2**36 - 1, 2**36, 2**60])
def test_any_time_has_a_bucket(us: int) -> None:
    probe = RequestProbe("Fetch")
    probe.record(us)
    probe.record(us)
    assert probe.count == 2
    assert probe.quantiles_ms(0.0)[0] * 1000 == pytest.approx(min(us, 2**36 - 1), rel=0.07)


def test_quantiles_forget_what_was_slow_ten_minutes_ago() -> None:
    probe = RequestProbe("Fetch")
    probe.record(1_000_000)
    assert probe.quantiles_ms(1000.0)[0] > 900
    probe.quantiles_ms(1300.0)
    probe.record(1000)
    assert probe.quantiles_ms(1600.0)[-1] < 2
    assert probe.quantiles_ms(2000.0)[-1] < 2
    assert probe.quantiles_ms(2400.0) == [0.0] * len(QUANTILES)


def test_a_wait_is_told_apart_from_work() -> None:
    probe = RequestProbe("Fetch")
    for _ in range(3):
        probe.record(2_000)
    probe.record_wait(1_000, 500_000)
    probe.record_queued(4_000)
    found = samples(text(*request_families([probe], now_s=0.0)))

    def told(phase: str, label: str = 'request="FetchConsumer"', end: str = "") -> float:
        return found[f"kafka_network_requestmetrics_{phase}timems{end}{{{label}}}"]

    assert {phase: told(phase, end="_sum") for phase in ("total", "requestqueue", "local", "remote")} == {
        "total": 507,
        "requestqueue": 4,
        "local": 7,
        "remote": 500,
    }
    assert told("remote", end="_count") == told("requestqueue", end="_count") == told("total", end="_count") == 4
    slowest = 'request="FetchConsumer",quantile="0.99"'
    assert told("total", slowest) == pytest.approx(501, rel=0.07)
    assert told("requestqueue", slowest) == pytest.approx(4, rel=0.07)
    assert told("requestqueue", 'request="FetchConsumer",quantile="0.50"') == 0
    assert told("local", slowest) == pytest.approx(2, rel=0.07)
    assert told("remote", slowest) == pytest.approx(500, rel=0.07)
    assert told("remote", 'request="FetchConsumer",quantile="0.50"') == 0


def test_gauges_and_counters() -> None:
    managed = samples(text(*gauges("kafka_server_replicamanager", {"leadercount": 3}, "Replicas of this broker")))
    assert managed == {"kafka_server_replicamanager_leadercount": 3}
    shrunk = samples(text(*counters("kafka_server_replicamanager", {"isrshrinks": 2}, "Replicas of this broker")))
    assert shrunk == {
        "kafka_server_replicamanager_isrshrinks_total": 2,
        "kafka_server_replicamanager_isrshrinkspersec": 2,
    }


def test_a_metric_with_two_names_says_the_same_under_both() -> None:
    probes = TopicProbes()
    probes["orders"].bytes_in += 300
    rendered = text(*probes.collect())
    by_strimzi, by_confluent = (f"kafka_server_brokertopicmetrics_bytesin{end}" for end in ("_total", "persec"))
    assert (
        samples(rendered)[f'{by_strimzi}{{topic="orders"}}'] == samples(rendered)[f'{by_confluent}{{topic="orders"}}']
    )
    assert rendered.count(f"# TYPE {by_confluent} counter\n") == 1
    assert names_of("kafka_server_kafkaserver_brokerstate") == ("kafka_server_kafkaserver_brokerstate",)


def test_a_rate_is_of_the_last_minute() -> None:
    now = count = 0.0
    rate = RecentRate(lambda: now, lambda: count)
    rates = []
    for more in (60, 60, 0, 0, 0):
        now, count = now + 20, count + more
        rates.append(rate())
    assert rates == [3, 3, 2, 0, 0]


def test_how_idle_a_thread_is_forgets_what_was_a_minute_ago() -> None:
    now = used = 0.0
    share = IdleShare(lambda: now, lambda: used)
    assert share() == 1
    shares = []
    for worked in (10, 10, 5, 0, 0, 0):
        now, used = now + 20, used + worked
        shares.append(share())
    assert shares == [0.5, 0.5, 0.5833, 0.875, 0.9167, 1]
    assert {family.name for family in idle_families(0.25)} == {
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
    }


def test_the_process_tells_about_itself() -> None:
    found = samples(text(*process_families()))
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert found["process_open_fds"] >= 3
    assert found["process_start_time_seconds"] > 0
    assert found["process_cpu_seconds_total"] > 0


def test_the_text_is_what_prometheus_reads() -> None:
    hostile = Family("kafka_test", GAUGE, "A test.", [((("topic", 'a"b\\c\nd'),), 1.5), ((), -2)])
    rendered = text(hostile, *process_families())
    assert 'kafka_test{topic="a\\"b\\\\c\\nd"} 1.5' in rendered
    assert rendered.endswith("\n")
    assert [line for line in rendered.splitlines() if not LINE.fullmatch(line)] == []
    assert rendered.count("# TYPE kafka_test gauge\n") == 1


def test_many_samples_come_in_pieces() -> None:
    registry = Registry()
    registry.add(lambda: [Family("kafka_test", GAUGE, "A test.", [("", number) for number in range(2500)])])
    pieces = list(registry.pieces())
    assert max(piece.count("\n") for piece in pieces) <= 1000
    assert sum(piece.count("\nkafka_test ") for piece in ("\n" + piece for piece in pieces)) == 2500


def test_a_collector_can_let_others_in() -> None:
    registry = Registry()
    registry.add(lambda: [PAUSE, Family("kafka_test", GAUGE, "A test.", [((), 1)])])
    assert list(registry.pieces()) == ["", "# HELP kafka_test A test.\n# TYPE kafka_test gauge\nkafka_test 1\n"]
