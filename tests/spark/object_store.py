"""An object store that speaks Amazon's S3: moto's server, which knows its users, behind a door that can be shut.

What it holds is in its memory, so it is not killed: behind a shut door, nobody reaches it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

BUCKET = "lake"
_ACTIONS_BEFORE_LOGINS_COUNT = 4
_POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
_START_SECONDS = 120
_REGION = "us-east-1"


class ObjectStore:
    """A context manager. `key` and `secret` are those of its only user; there is one bucket, `lake`."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._stack = ExitStack()
        self._door: Door

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            port = _free_port()
            words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            environ = os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": str(_ACTIONS_BEFORE_LOGINS_COUNT)}
            with self._log.open("wb") as log:
                process = subprocess.Popen(words, env=environ, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            _wait_for(port)
            self.key, self.secret = self._user(port)
            self._door = stack.enter_context(Door(port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._door.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What jobs find the login in."""
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}

    def shut(self) -> None:
        self._door.shut()

    def open(self) -> None:
        self._door.open()

    def objects(self, prefix: str = "") -> list[str]:
        """The keys of all objects in the bucket."""
        pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(each["Key"] for page in pages for each in page.get("Contents", ()))

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        """The rows of Parquet files, as PyArrow reads them from the bucket."""
        from pyarrow import dataset, fs

        host = self.url.removeprefix("http://")
        store = fs.S3FileSystem(
            endpoint_override=host, scheme="http", access_key=self.key, secret_key=self.secret, region=_REGION
        )
        found: list[dict[str, Any]] = (
            dataset.dataset(f"{BUCKET}/{prefix}", filesystem=store, format="parquet", partitioning="hive")
            .to_table()
            .to_pylist()
        )
        return found

    def table(self, kind: str) -> list[dict[str, Any]]:
        """The rows of the table `orders`, as delta-rs or PyIceberg read them from the bucket."""
        found: list[dict[str, Any]]
        if kind == "delta":
            from deltalake import DeltaTable

            options = {
                **self.environment,
                "AWS_ENDPOINT_URL": self.url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": _REGION,
            }
            found = DeltaTable(f"s3://{BUCKET}/orders", storage_options=options).to_pyarrow_table().to_pylist()
            return found
        from pyiceberg.table import StaticTable

        metadata = f"{BUCKET}/shop/orders/metadata"
        hint = self._client().get_object(Bucket=BUCKET, Key="shop/orders/metadata/version-hint.text")["Body"].read()
        options = {
            "s3.endpoint": self.url,
            "s3.access-key-id": self.key,
            "s3.secret-access-key": self.secret,
            "s3.region": _REGION,
        }
        table = StaticTable.from_metadata(f"s3a://{metadata}/v{hint.decode().strip()}.metadata.json", options)
        found = table.scan().to_arrow().to_pylist()
        return found

    def _client(self) -> Any:
        import boto3

        return boto3.client("s3", _REGION, endpoint_url=self.url, **self._login(self.key, self.secret))

    def _user(self, port: int) -> tuple[str, str]:
        import boto3

        def client(service: str) -> Any:
            return boto3.client(
                service, _REGION, endpoint_url=f"http://127.0.0.1:{port}", **self._login("nobody", "nobody")
            )

        iam = client("iam")
        iam.create_user(UserName="jobs")
        iam.put_user_policy(UserName="jobs", PolicyName="all", PolicyDocument=_POLICY)
        found = iam.create_access_key(UserName="jobs")["AccessKey"]
        client("s3").create_bucket(Bucket=BUCKET)
        return found["AccessKeyId"], found["SecretAccessKey"]

    def _login(self, key: str, secret: str) -> dict[str, str]:
        return {"aws_access_key_id": key, "aws_secret_access_key": secret}


class Door:
    """Passes connections on to a port. Shut, it refuses them, and breaks those that are there."""

    def __init__(self, target: int) -> None:
        self.port = _free_port()
        self._target = target
        self._listener: socket.socket | None = None
        self._inside: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        if self._listener:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for each in list(self._inside):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        """Both ways, until both sides have ended."""
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            self._inside |= {client, server}
            back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
            back.start()
            _pass_on(client, server)
            back.join()
            self._inside -= {client, server}


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end, "moto's server did not come"
            time.sleep(0.1)
