"""Quotas of a real kafkad, set and described by kctl; and a client that is held to one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kafkad.wire.records import Record, build_batch
from tests.broker import KafkadProcess
from tests.clients.asker import Asker, produce

pytestmark = pytest.mark.slow


def kctl(broker: KafkadProcess, *words: str) -> Any:
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "-o", "json", "-y", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return json.loads(done.stdout) if done.stdout else None


def test_a_quota_from_kctl_holds_a_client(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as broker:
        kctl(broker, "quotas", "set", "client=held", "producer_byte_rate=10000", "request_percentage=50")
        kctl(broker, "quotas", "set", "ip=10.0.0.1", "connection_creation_rate=7")
        listed = json.dumps(kctl(broker, "quotas", "list"))
        for told in ("held", "producer_byte_rate", "request_percentage", "10.0.0.1", "connection_creation_rate"):
            assert told in listed
        held, free = Asker(broker.port, client_id="held"), Asker(broker.port, client_id="free")
        free.create("t")
        large = produce("t", bytes(build_batch([Record(0, 0, None, bytes(110_000))])))
        assert held.ask("Produce", 9, large).throttle_time_ms == pytest.approx(1000, abs=300)
        begin = time.monotonic()
        held.send("Produce", 9, produce("t", bytes(build_batch([Record(0, 0, None, b"x")]))))
        assert free.ask("Produce", 9, large).throttle_time_ms == 0
        assert time.monotonic() - begin < 0.5, "others are not held"
        held.receive("Produce", 9)
        assert time.monotonic() - begin > 0.5, "it was not read meanwhile"
        kctl(broker, "quotas", "unset", "client=held", "producer_byte_rate", "request_percentage")
        assert held.ask("Produce", 9, large).throttle_time_ms == 0
        held.client.close()
        free.client.close()
