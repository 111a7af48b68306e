"""Checks whether the cluster for a job's executors can be reached; Spark itself would keep asking it for minutes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import is_elsewhere, is_stateful, paths_of
from kafkad_etl.job import Job, Scalar
from kafkad_etl.machine import hadoop
from kafkad_etl.machine.reachability import Address, Connect, address_of, unreachable

_SPARK, _KUBERNETES = "spark://", "k8s://"
_SPARK_PORT = 7077


def check(
    job: Job,
    master: str = "",
    conf: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
    connect: Connect = socket.create_connection,
) -> None:
    """Raises EtlError if the master is not responding. `master` and `conf` come from the command line and override
    the job's."""
    check_master(master or job.spark.master, {**job.spark.conf, **(conf or {})}, environ, connect)


def check_master(
    master: str,
    conf: Mapping[str, Scalar],
    environ: Mapping[str, str] = os.environ,
    connect: Connect = socket.create_connection,
) -> None:
    """Raises EtlError if this master is not responding."""
    if master == "yarn":
        found = hadoop.find(environ, conf)
        hadoop.need_yarn(environ, found)
        files = [str(path) for path in found.files if path.name == "yarn-site.xml"]
        hint = f"{files[0] if files else 'spark.conf'} gives this address (yarn.resourcemanager.address)"
        _reach("YARN's ResourceManager", hadoop.resource_managers(found.settings), hint, connect)
    elif master.startswith(_SPARK):
        there = [address_of(text, _SPARK_PORT) for text in master.removeprefix(_SPARK).split(",")]
        _reach("Spark's master", [each for each in there if each], f"the address comes from master {master}", connect)
    elif master.startswith(_KUBERNETES):
        hint = f"the address comes from master {master}; kubectl cluster-info shows the right one"
        _reach("the API server of Kubernetes", [_api_server(master.removeprefix(_KUBERNETES))], hint, connect)


def doubts(job: Job, master: str = "") -> list[str]:
    """Warnings about paths that only work if the cluster's machines share a disk with this one."""
    master = master or job.spark.master
    if master.startswith("local"):
        return []
    found = []
    for key, path in paths_of(job):
        if key == "run.checkpoint":
            if is_stateful(job) and not is_elsewhere(path):
                found.append(f"{key} is on this machine's disk, but executors of {master} keep state on theirs")
        elif path and not is_elsewhere(path):
            found.append(f"{key} {path} is on this machine's disk, but executors of {master} use theirs")
    return [f"{text}: use a directory that all machines share, or hdfs://, s3a://…" for text in found]


def faults(job: Job) -> Iterator[EtlError]:
    """The same as `check`, for a job that is not about to run."""
    try:
        check(job)
    except EtlError as error:
        yield error


def _api_server(url: str) -> Address:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)


def _reach(who: str, addresses: list[Address], hint: str, connect: Connect) -> None:
    reasons = unreachable(addresses, connect)
    if reasons:
        raise EtlError(f"{who} is not responding at {reasons}", EtlExit.CLUSTER, hints=(hint,))
