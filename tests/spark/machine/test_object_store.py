"""An object store, as it is seen before Spark starts."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.machine.object_store import faults
from kafkad_etl.process.submitting import settings
from tests.spark.jobs import job

KEYS = {"AWS_ACCESS_KEY_ID": "anna", "AWS_SECRET_ACCESS_KEY": "geheim"}
HERE = {"endpoint": "http://store:9000"}


def told(status: int | OSError, environ: dict[str, str] = KEYS, path: str = "s3a://lake/orders", **blocks: Any) -> Any:
    asked: list[str] = []

    def ask(url: str) -> int:
        asked.append(url)
        if isinstance(status, OSError):
            raise status
        return status

    found = faults(job(sink={"type": "parquet", "path": path}, **blocks), environ, ask)
    return [(error.what, error.exit_code) for error in found], asked


def test_a_bucket_is_asked_for() -> None:
    assert told(403, s3=HERE) == ([], ["http://store:9000/lake"])
    assert told(200, KEYS | {"AWS_ENDPOINT_URL": "https://other/"}) == ([], ["https://other/lake"])
    text = "sink.path: the object store http://store:9000 has no bucket lake"
    assert told(404, s3=HERE)[0] == [(text, EtlExit.CLUSTER)]
    away = OSError(111, "Connection refused")
    text = "sink.path: the object store http://store:9000 is not responding: Connection refused"
    assert told(away, s3=HERE)[0] == [(text, EtlExit.CLUSTER)]
    both = told(403, s3=HERE, run={"checkpoint": "s3a://lake/c"})
    assert both == ([], ["http://store:9000/lake"])


def test_amazons_own_is_left_to_spark() -> None:
    assert told(404) == ([], [])
    assert told(404, {}) == ([], [])  # a role may give the keys
    assert told(404, {}, path="/lake/orders") == ([], [])


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are"),
        ({"AWS_ACCESS_KEY_ID": "anna"}, "AWS_SECRET_ACCESS_KEY is"),
    ],
)
def test_keys_are_in_the_environment(environ: dict[str, str], missing: str) -> None:
    text = f"sink.path: {missing} not set, and s3a:// takes its keys from the environment"
    assert told(403, environ, s3=HERE)[0] == [(text, EtlExit.ENVIRONMENT)]
    own = {"conf": {"spark.hadoop.fs.s3a.aws.credentials.provider": "org.example.Provider"}}
    assert told(403, environ, s3=HERE, spark=own)[0] == []


def test_spark_is_told_where_it_is() -> None:
    prefix = "spark.hadoop.fs.s3a"
    files = {"type": "parquet", "path": "s3a://lake/orders"}
    found = settings(job(sink=files, s3=HERE), "local[1]")
    assert found[f"{prefix}.endpoint"] == "http://store:9000"
    assert (found[f"{prefix}.path.style.access"], found[f"{prefix}.endpoint.region"]) == (True, "us-east-1")
    over = {"conf": {f"{prefix}.endpoint.region": "eu-1", f"{prefix}.retry.limit": 9}}
    found = settings(job(sink=files, s3=HERE | {"path_style": False}, spark=over), "local[1]")
    assert (found[f"{prefix}.path.style.access"], found[f"{prefix}.endpoint.region"]) == (False, "eu-1")
    assert found[f"{prefix}.retry.limit"] == 9
    assert not any("s3a" in name for name in settings(job(), "local[1]"))
