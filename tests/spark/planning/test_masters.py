from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.planning import masters, places
from tests.spark.jobs import job
from tests.spark.machine.test_hadoop import conf


class Net:
    """A network in which only some addresses answer."""

    def __init__(self, *answering: tuple[str, int]) -> None:
        self.answering = answering
        self.asked: list[tuple[str, int]] = []

    def __call__(self, address: tuple[str, int], seconds: float) -> socket.socket:
        self.asked.append(address)
        if address not in self.answering:
            raise ConnectionRefusedError(111, "Connection refused")
        return socket.socket()


def told(master: str, net: Net, conf: dict[str, str] | None = None, **environ: str) -> EtlError:
    with pytest.raises(EtlError) as refused:
        masters.check(job(), master, conf, environ, net)
    return refused.value


def test_on_this_machine_nobody_is_asked() -> None:
    net = Net()
    masters.check(job(), "local[2]", {}, {}, net)
    masters.check(job(), "", {}, {}, net)
    assert net.asked == []


def test_a_resource_manager_that_does_not_answer_is_named_with_the_file_that_names_it(tmp_path: Path) -> None:
    conf(tmp_path, yarn_site={"yarn.resourcemanager.hostname": "rm"})
    error = told("yarn", Net(), HADOOP_CONF_DIR=str(tmp_path))
    assert error.what == "YARN's ResourceManager is not responding at rm:8032: Connection refused"
    assert error.hints == (f"{tmp_path}/yarn-site.xml gives this address (yarn.resourcemanager.address)",)
    assert error.exit_code == EtlExit.CLUSTER
    assert told("yarn", Net()).exit_code == EtlExit.ENVIRONMENT
    masters.check(job(), "yarn", {}, {"YARN_CONF_DIR": str(tmp_path)}, Net(("rm", 8032)))


def test_settings_of_the_command_line_count() -> None:
    options = {"spark.hadoop.yarn.resourcemanager.address": "rm:1"}
    assert "rm:1" in told("yarn", Net(), options, HADOOP_CONF_DIR="/").what


def test_of_several_masters_one_is_enough() -> None:
    masters.check(job(), "spark://a:1,b:2", {}, {}, Net(("b", 2)))
    what = told("spark://a:1,b", Net()).what
    assert what == "Spark's master is not responding at a:1: Connection refused; b:7077: Connection refused"


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("k8s://https://host:6443", ("host", 6443)),
        ("k8s://https://host", ("host", 443)),
        ("k8s://http://host", ("host", 80)),
        ("k8s://host:6443", ("host", 6443)),
    ],
)
def test_the_api_server_of_kubernetes(master: str, address: tuple[str, int]) -> None:
    net = Net()
    error = told(master, net)
    assert net.asked == [address]
    assert error.what.startswith(f"the API server of Kubernetes is not responding at {address[0]}:{address[1]}")
    assert error.exit_code == EtlExit.CLUSTER


def test_the_job_s_own_master_counts_for_validate() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert list(masters.faults(job(spark={"master": f"spark://127.0.0.1:{port}"}))) == []
    (fault,) = masters.faults(job(spark={"master": f"spark://127.0.0.1:{port}"}))
    assert fault.what == f"Spark's master is not responding at 127.0.0.1:{port}: Connection refused"


def test_an_hdfs_that_does_not_answer_is_named_once() -> None:
    def faults(net: Net, **blocks: Any) -> list[str]:
        return [error.what for error in places.faults(job(**blocks), net)]

    lake = {"sink": {"type": "parquet", "path": "hdfs://nn:1/lake"}}
    both = lake | {"run": {"checkpoint": "hdfs://nn:1/checkpoint"}}
    silent = "is not responding at nn:1: Connection refused"
    assert faults(Net(), **lake) == [f"sink.path: the NameNode of hdfs://nn:1/lake {silent}"]
    assert faults(Net(), **both) == [f"run.checkpoint: the NameNode of hdfs://nn:1/checkpoint {silent}"]
    assert faults(Net(("nn", 1)), **both) == []


def test_disks_of_this_machine_are_doubted_on_a_cluster_only() -> None:
    lake = {"sink": {"type": "parquet", "path": "lake"}}
    assert masters.doubts(job(**lake), "local[2]") == []
    (doubt,) = masters.doubts(job(**lake), "yarn")
    assert doubt.startswith(
        "sink.path lake is on this machine's disk, but executors of yarn use theirs: use a directory"
    )
    assert masters.doubts(job(sink={"type": "parquet", "path": "hdfs://nn/lake"}), "yarn") == []
    stateful = {"transform": {"watermark": {"column": "ts", "delay": "1 minute"}}}
    (doubt,) = masters.doubts(job(**stateful), "spark://a")
    assert doubt.startswith("run.checkpoint is on this machine's disk, but executors of spark://a keep state on")
    assert masters.doubts(job(**stateful, run={"checkpoint": "s3a://b/c"}), "spark://a") == []
