"""A real schema registry: Apicurio, in memory, with the API that Confluent documents."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from zipfile import ZipFile

from kafkad_etl.machine.download import repository_url
from tests.oracle import kafka as oracle

VERSION = "2.6.13.Final"
ARCHIVE = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.zip"
SHA256 = "d88014c1addff1fc585e1e9510fc41276473726340f4e0997353b46342d3532b"


class Apicurio:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Registers a schema. Returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": references or []}
        return int(self._ask("POST", f"/subjects/{subject}/versions", body)["id"])

    def be_compatible(self, level: str = "BACKWARD") -> None:
        """Has it refuse schemas that are not compatible; by default it takes any."""
        self._ask("PUT", "/config", {"compatibility": level})

    def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urlopen(Request(self.url + path, json.dumps(body).encode(), headers, method=method)) as answer:
            return json.load(answer)


def missing() -> str | None:
    return None if shutil.which("java") else "java is not installed"


@contextmanager
def running() -> Iterator[Apicurio]:
    port = oracle.free_port()
    (program,) = _fetched().glob("*-runner.jar")
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    server = oracle.Server(["java", *options, *settings, "-jar", str(program)], port)
    try:
        server.wait_ready()
        yield Apicurio(port)
    finally:
        server.stop()


def _fetched() -> Path:
    """The directory with the program, which one worker fetches for all."""
    directory = oracle.jars_directory(f"apicurio-{VERSION}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "apicurio.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            archive, unpacked = directory.with_suffix(".zip"), directory.with_suffix(".part")
            with urlopen(f"{repository_url(os.environ)}/{ARCHIVE}") as answer, archive.open("wb") as file:
                shutil.copyfileobj(answer, file)
            with archive.open("rb") as file:
                assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256
            with ZipFile(archive) as file:
                file.extractall(unpacked)
            archive.unlink()
            unpacked.rename(directory)
    return directory
