"""As much of Kubernetes' API as Spark's driver uses, in this process: a pod is a local process that does what the
image's entry point would, from nothing but what the pod's specification says."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class Kubernetes:
    """A context manager. While it `refuses`, it does as to somebody without rights."""

    def __init__(self, directory: Path, spark_home: Path, java_home: Path) -> None:
        self._directory, self._spark_home, self._java_home = directory, spark_home, java_home
        self.refuses = False
        self.pods: dict[str, dict[str, Any]] = {}
        self.seen: list[dict[str, Any]] = []
        """All pods there ever were."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"k8s://http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        kind = path.split("/")[-1] if path.endswith("s") else path.split("/")[-2]
        if method == "POST" and kind == "pods":
            return self._create(body)
        if method == "POST":
            return body
        if kind == "pods" and method == "GET" and not path.endswith("/pods"):
            return self.pods[path.rpartition("/")[2]]
        if kind == "pods" and method == "DELETE":
            self.pods.clear()
        if method != "GET":
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        items = list(self.pods.values()) if kind == "pods" else []
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    def _create(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = pod["metadata"]["name"]
        pod["metadata"] |= {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "default"}
        pod["status"] = {"phase": "Running"}
        self.pods[name] = pod
        self.seen.append(pod)
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        given = {each["name"]: each.get("value", "") for each in container["env"]}
        self._run(name, given | {"SPARK_EXECUTOR_POD_NAME": name, "SPARK_EXECUTOR_POD_IP": "127.0.0.1"})
        return pod

    def _run(self, name: str, given: Mapping[str, str]) -> None:
        """Runs an executor as entrypoint.sh does for `executor`."""
        place = self._directory / name
        place.mkdir(parents=True)
        memory = given["SPARK_EXECUTOR_MEMORY"]
        options = [value for key, value in sorted(given.items()) if key.startswith("SPARK_JAVA_OPT_")]
        words = [str(self._java_home / "bin" / "java"), *options, f"-Xms{memory}", f"-Xmx{memory}"]
        words += ["-cp", str(self._spark_home / "jars" / "*"), BACKEND]
        words += [word for argument, variable in ARGUMENTS.items() for word in (argument, given[variable])]
        environ = {
            **given,
            "SPARK_LOCAL_DIRS": str(place),
            "SPARK_HOME": str(self._spark_home),
            "PATH": os.defpath,
        }
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(words, cwd=place, env=environ, stdout=log, stderr=log)
        self._processes.append(process)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                told: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403}
                if not api.refuses:
                    told = api.answer(self.command, urlsplit(self.path).path, json.loads(sent) if sent else {})
                text = json.dumps(told).encode()
                self.send_response(403 if api.refuses else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_DELETE = do_PATCH = do_PUT = do_GET  # noqa: N815

            def log_message(self, *arguments: object) -> None: ...

        return Handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        for process in self._processes:
            process.kill()
            process.wait()

    def ended(self, seconds: float) -> bool:
        """True if all executors end by themselves."""
        return all(process.wait(seconds) is not None for process in self._processes)
