"""A small real Hadoop on loopback: HDFS of one node, and a YARN of one ResourceManager and one NodeManager.

All of it is in one JVM, which Python drives over Py4J, and which ends when its standard input does: nobody leaves one
behind. It the Hadoop inside PySpark; only what servers need beside that is fetched.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from xml.sax.saxutils import escape

from kafkad_etl.machine.jars import Jar

JARS = (
    Jar(
        "org.apache.hadoop:hadoop-client-minicluster:3.4.1",
        39826923,
        "5b90be54a39d856f237a4530e25f62aea4b67c180c73b5cfb1aff35c502b2d29",
    ),
    Jar("junit:junit:4.13.2", 384581, "8e495b634469d64fb8acfa3495a065cbacc8a0fff55ce1e31007be4c16dc57d3"),
    Jar("javax.xml.bind:jaxb-api:2.3.1", 128076, "88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06"),
    *(
        Jar(f"org.bouncycastle:{name}-jdk18on:1.78.1", size, digest)
        for name, size, digest in (
            ("bcpkix", 1125173, "4b48ea084e5232b9d79ebca1887b9de037b124931807cd60710748c2aee08cc9"),
            ("bcprov", 8324412, "add5915e6acfc6ab5836e1fd8a5e21c6488536a8c1f21f386eeb3bf280b702d7"),
            ("bcutil", 705135, "d9fa56f97b0f761ce3bc8d9d74c5d7137a987bf5bd3abfe1003f9bafa45a1d2f"),
        )
    ),
)
OF_PYSPARK = ("hadoop-client-*", "log4j-*", "slf4j-api-*", "jcl-over-slf4j-*", "snappy-java-*", "leveldbjni-*")
OPTIONS = [
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=warn",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
]
START_MS = 60_000


class Hadoop:
    """A context manager. `java_home` is that of its own JVM and of all containers."""

    def __init__(self, directory: Path, spark_home: Path, java_home: Path, jars: list[Path]) -> None:
        self.conf = directory / "conf"
        """The directory for HADOOP_CONF_DIR."""
        self._directory = directory
        self._java_home = java_home
        self._jars = [*jars, *(path for name in OF_PYSPARK for path in (spark_home / "jars").glob(f"{name}.jar"))]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._jvm = self._start(stack)
            settings = self._jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
            for name, value in self._settings().items():
                settings.set(name, value)
            hdfs = self._jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(
                settings, self._jvm.java.io.File(str(self._directory / "dfs"))
            ).build()
            hdfs.waitActive()
            self._files = hdfs.getFileSystem()
            self.url = str(hdfs.getURI().toString())
            """Of HDFS."""
            self._yarn = self._jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
            self._yarn.init(settings)
            self._yarn.start()
            assert self._yarn.waitForNodeManagersToConnect(START_MS), "the NodeManager did not come"
            self._write_conf(self._yarn.getConfig())
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: contextlib.ExitStack) -> Any:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # comes with PySpark

        self._directory.mkdir(parents=True, exist_ok=True)
        log = stack.enter_context((self._directory / "log").open("w"))
        port, process = launch_gateway(
            classpath=":".join(map(str, self._jars)),
            javaopts=[*OPTIONS, f"-Djava.io.tmpdir={self._directory}"],
            java_path=str(self._java_home / "bin" / "java"),
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=str(self._directory),
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        stack.callback(_end, process)  # servers would take their time
        stack.callback(gateway.close)
        return gateway.jvm

    def _settings(self) -> dict[str, str]:
        return {
            "hadoop.tmp.dir": str(self._directory / "tmp"),
            "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo"
            ".FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
            "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "3072",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
            "yarn.nodemanager.admin-env": f"JAVA_HOME={self._java_home}",
        }

    def _write_conf(self, settings: Any) -> None:
        self.conf.mkdir()
        write_conf(self.conf / "core-site.xml", {"fs.defaultFS": self.url})
        write_conf(self.conf / "hdfs-site.xml", {"dfs.replication": "1"})
        names = ("yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address")
        write_conf(self.conf / "yarn-site.xml", {name: str(settings.get(name)) for name in names})

    def applications(self) -> dict[str, tuple[str, str]]:
        """By its name the state and the final state of each application; of several the last one that was submitted."""
        found = self._yarn.getResourceManager().getRMContext().getRMApps().values()
        ordered = sorted(found, key=lambda each: int(each.getSubmitTime()))
        return {
            str(each.getName()): (str(each.getState().toString()), str(each.getFinalApplicationStatus().toString()))
            for each in ordered
        }

    def fetch(self, path: str, to: Path) -> Path:
        """A directory of HDFS, copied to this machine."""
        at = self._jvm.org.apache.hadoop.fs.Path
        self._files.copyToLocalFile(False, at(path), at(str(to)), True)
        return to

    def remove(self, path: str) -> None:
        assert self._files.delete(self._jvm.org.apache.hadoop.fs.Path(path), True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def write_conf(path: Path, settings: Mapping[str, str]) -> None:
    """As Hadoop's *-site.xml files are."""
    listed = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    path.write_text(f"<configuration>{''.join(listed)}</configuration>")
