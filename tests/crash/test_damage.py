"""Damage is told when it is found: in the log, at /health and /metrics, and by kctl doctor."""

from __future__ import annotations

import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from tests.broker import KafkadProcess
from tests.clients.asker import STAMP_MS, Asker, batch, produce
from tests.oracle.kafka import free_port

SETTINGS = {"log.segment.bytes": "1000", "log.flush.offset.checkpoint.interval.ms": "9999999"}


def get(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def doctor(kafkad: KafkadProcess) -> str:
    command = [sys.executable, "-m", "kctl", "doctor", "--only", "damage", "-b", kafkad.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def fetch_code(asker: Asker, offset: int) -> int:
    wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    question = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = asker.ask("Fetch", 4, question | {"topics": [{"topic": "t", "partitions": wanted}]})
    return int(answer.responses[0].partitions[0].error_code)


def test_damage_is_told(tmp_path: Path) -> None:
    port = free_port()
    kafkad = KafkadProcess(tmp_path, SETTINGS | {"http.listener": f"127.0.0.1:{port}"})
    with kafkad:
        asker = Asker(kafkad.port)
        asker.create("t")
        for stamp in range(20):
            asker.ask("Produce", 7, produce("t", batch(3, STAMP_MS + 2000 + stamp)))
        asker.client.close()
        assert get(port, "/health") == (200, "ok\n")
        kafkad.kill()
        first, *_, last = sorted((kafkad.log_directory() / "t-0").glob("*.log"))
        content = bytearray(first.read_bytes())
        content[len(content) // 2] ^= 1
        first.write_bytes(content)
        with last.open("ab") as file:
            file.write(b"torn")
        size = last.stat().st_size
        kafkad.start()
        lines = kafkad.log.splitlines()
        (hole,) = [line for line in lines if "damaged (" in line]
        (tail,) = [line for line in lines if "was cut off" in line]
        assert " ERROR " in hole
        assert f"t-0: {first}, from byte " in hole
        assert "have consumers go on at offset" in hole
        assert " WARNING " in tail
        assert f"t-0: {last}, from byte {size - 4} on, 4 bytes" in tail
        status, health = get(port, "/health")
        assert status == 200
        assert health.startswith("ok\ndamaged: t-0: ")
        metrics = get(port, "/metrics")[1]
        assert "\nkafkad_log_damaged_places 1" in metrics
        assert "\nkafkad_log_torn_bytes 4" in metrics
        said = doctor(kafkad)
        assert "ERROR  a log is damaged: t-0: " in said, said
        asker = Asker(kafkad.port)
        asker.client.close()


def test_damage_that_a_reader_meets_is_told_once(tmp_path: Path) -> None:
    kafkad = KafkadProcess(tmp_path)
    with kafkad:
        asker = Asker(kafkad.port)
        asker.create("t")
        (segment,) = (kafkad.log_directory() / "t-0").glob("*.log")
        with segment.open("r+b") as file:
            file.write(bytes(segment.stat().st_size))
        for _ in range(3):
            assert fetch_code(asker, 1) == 2
        (told,) = [line for line in kafkad.log.splitlines() if "damaged (" in line]
        assert f"t-0: {segment}, from byte 0 on: damaged" in told
        asker.client.close()
        kafkad.kill()
