"""The only broker dies while records are read."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl


@pytest.mark.timeout(60)
def test_who_follows_is_told_once_and_not_left_waiting(kctl: Kctl, tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with ExitStack() as stack, KafkadProcess(tmp_path / "kafkad", settings) as broker:
        at = ("-b", broker.bootstrap)
        assert kctl(*at, "topics", "create", "t", "-p", 3, "-y").code == Exit.DONE
        lines = tmp_path / "lines"
        lines.write_text("a\n" * 100)
        assert kctl(*at, "produce", "t", "--file", lines, "-q").code == Exit.DONE
        base = [sys.executable, "-m", "kctl", *at, "consume", "t", "--follow", "--from", "earliest", "--timeout", "1s"]
        readers = [
            stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            for command in (base, [*base, "--group", "g"])
        ]
        for reader in readers:
            assert reader.stdout
            assert reader.stdout.readline() == "a\n"
        broker.kill()
        for reader in readers:
            assert reader.stdout and reader.stderr
            out, err = reader.stdout.read(), reader.stderr.read()
            assert reader.wait() == Exit.UNREACHABLE, err
            assert err.count("error: no broker answered") == 1, err
            printed = 1 + out.count("a\n")
            assert f"{printed} records were printed" in err, "and how far it came"
