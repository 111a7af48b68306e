"""A running kafkad's /metrics: the names that dashboards for Kafka ask for, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metering.scrape import COMMITTED, GROUP, RECORDS, TOPIC, Metered, fetch, metered

PARTITION = f'{{topic="{TOPIC}",partition="0"}}'
OF_GROUP = f'{{consumergroup="{GROUP}",topic="{TOPIC}",partition="0"}}'


DASHBOARDS = {
    title: lines.split()
    for title, _, lines in (
        part.partition("\n") for part in Path(__file__).with_name("dashboards.txt").read_text().split("\n# ")[1:]
    )
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    with metered(tmp_path_factory.mktemp("metered")) as broker:
        yield broker


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_names_that_dashboards_ask_for_are_served(broker: Metered, dashboard: str) -> None:
    assert set(DASHBOARDS[dashboard]) - broker.scrape().families == set()


def test_no_metric_is_told_twice(broker: Metered) -> None:
    lines = [line for line in broker.scrape().text.splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)


def test_a_group_is_behind_by_what_it_has_not_committed(broker: Metered) -> None:
    found = broker.scrape()
    assert found[f"kafka_consumergroup_current_offset{OF_GROUP}"] == COMMITTED
    assert found[f"kafka_consumergroup_lag{OF_GROUP}"] == RECORDS - COMMITTED
    assert found[f'kafka_consumergroup_lag_sum{{consumergroup="{GROUP}",topic="{TOPIC}"}}'] == RECORDS - COMMITTED
    assert found[f'kafka_consumergroup_members{{consumergroup="{GROUP}"}}'] == 0


def test_a_partition_says_where_it_stands(broker: Metered) -> None:
    found = broker.scrape()
    told = {name: found[f"{name}{PARTITION}"] for name in found.families if f"{name}{PARTITION}" in found.samples}
    assert told.pop("kafka_log_log_size") > 0
    assert told == {
        "kafka_log_log_logstartoffset": 0,
        "kafka_log_log_logendoffset": RECORDS,
        "kafka_log_log_numlogsegments": 1,
        "kafka_cluster_partition_replicascount": 1,
        "kafka_cluster_partition_insyncreplicascount": 1,
        "kafka_cluster_partition_underreplicated": 0,
        "kafka_cluster_partition_underminisr": 0,
        "kafka_cluster_partition_atminisr": 1,
        "kafka_cluster_partition_laststableoffsetlag": 0,
        "kafka_topic_partition_current_offset": RECORDS,
        "kafka_topic_partition_oldest_offset": 0,
        "kafka_topic_partition_leader": 1,
        "kafka_topic_partition_leader_is_preferred": 1,
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": 1,
        "kafka_topic_partition_under_replicated_partition": 0,
    }
    assert found[f'kafka_topic_partitions{{topic="{TOPIC}"}}'] == 1
    assert found[f'kafka_broker_info{{id="1",address="{broker.kafkad.bootstrap}"}}'] == 1


def test_connections_are_told_by_listener_and_by_what_clients_say_they_are(broker: Metered) -> None:
    found = broker.scrape()
    listener = 'listener="PLAINTEXT"'
    for name in ("socket_server_metrics", "socketservermetrics"):
        assert found[f"kafka_server_{name}_connection_count{{{listener}}}"] == 1
    made = found[f"kafka_server_socketservermetrics_connection_creation_total{{{listener}}}"]
    assert found[f"kafka_server_socketservermetrics_connection_close_total{{{listener}}}"] == made - 1
    probe = f'{{{listener},client_software_name="probe",client_software_version="1"}}'
    assert found[f"kafka_server_socketservermetrics_connections{probe}"] == 1


def test_errors_are_told_by_api_and_code(broker: Metered) -> None:
    error = '{request="Fetch",error="UNKNOWN_TOPIC_OR_PARTITION"}'
    assert broker.scrape()[f"kafka_network_requestmetrics_errors_total{error}"] == 1


def test_a_fetch_that_waits_for_records_says_for_how_long(broker: Metered) -> None:
    remote = 'kafka_network_requestmetrics_remotetimems_sum{request="Fetch"}'
    before = broker.scrape()[remote]
    fetch(broker.asker, TOPIC, offset=RECORDS, max_wait_ms=300)
    assert broker.scrape()[remote] - before >= 290


def test_a_produce_that_waits_for_the_disk_says_for_how_long(broker: Metered) -> None:
    broker.asker.create("durable", kafkad_acks_fsync="true")
    found = broker.scrape()
    assert found['kafka_network_requestmetrics_remotetimems_sum{request="Produce"}'] > 0
    waited = found['kafka_network_requestmetrics_totaltimems_sum{request="Produce"}']
    assert waited > found['kafka_network_requestmetrics_localtimems_sum{request="Produce"}']


def test_series_of_partitions_can_be_bounded_while_it_runs(broker: Metered) -> None:
    def bound(limit: str) -> None:
        entry = {"name": "kafkad.metrics.max.partitions", "config_operation": 0, "value": limit}
        resource = {"resource_type": 4, "resource_name": "", "configs": [entry]}
        answer = broker.asker.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
        assert answer.responses[0].error_code == 0

    every = broker.scrape()
    try:
        bound("1")
        few = broker.scrape()
    finally:
        bound("2147483647")
    for family in ("kafka_log_log_size", "kafka_topic_partition_current_offset", "kafka_consumergroup_lag"):
        assert len(few.of(family)) == 1
    assert few["kafka_server_replicamanager_partitioncount"] == every["kafka_server_replicamanager_partitioncount"]
    left_out = every["kafka_server_replicamanager_partitioncount"] - 1
    assert few["kafkad_metrics_partitions_left_out"] == left_out
    assert every["kafkad_metrics_partitions_left_out"] == 0
