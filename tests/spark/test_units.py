"""The systemd unit of jobs under a real systemd: which exit codes let a job start again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from tests.spark.booted import Booted, wait_until, why_not

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
AGAIN = {EtlExit.FAILED, EtlExit.CLUSTER, EtlExit.ENVIRONMENT}
"""Exit codes after which a job is started again."""
ENDS = """#!/bin/sh
echo "$3" >> starts
code=${3##*-}
exit ${code%.yaml}
"""
"""In place of kctl: exits with the number at the end of the job's name."""
QUICK = "[Service]\nRestartSec=100ms\n"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Booted]:
    if why := why_not():
        pytest.skip(why)
    with Booted(tmp_path) as booted:
        units = {f"/etc/systemd/system/{path.name}": path.read_text() for path in (ROOT / "systemd").glob("kctl-etl@*")}
        quick = {"/etc/systemd/system/kctl-etl@.service.d/quick.conf": QUICK}
        booted.add({**units, **quick})
        added = booted.run("useradd", "--system", "--home-dir", "/var/lib/kctl-etl", "kctl-etl")
        assert added.returncode == 0, added.stderr
        yield booted


def test_only_what_may_pass_by_itself_is_started_again(systemd: Booted) -> None:
    systemd.add({"/opt/kctl-etl/bin/kctl": ENDS})
    codes = [code for code in EtlExit if code != EtlExit.DONE]
    systemd.tell("start", "--no-block", *(f"kctl-etl@ends-{code}" for code in codes))
    starts = systemd.root / "var/lib/kctl-etl/starts"

    def counted() -> dict[int, int]:
        names = starts.read_text().split() if starts.exists() else []
        return {code: names.count(f"/etc/kctl-etl/ends-{code}.yaml") for code in codes}

    wait_until(lambda: min(counted()[code] for code in AGAIN) > 3, 60, lambda: str(counted()))
    assert {code for code, times in counted().items() if times > 1} == AGAIN, counted()
    failed = set(codes) - AGAIN - {EtlExit.INTERRUPTED}
    assert {systemd.shown(f"kctl-etl@ends-{code}", "ActiveState") for code in failed} == {"failed"}
