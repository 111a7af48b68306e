"""A job on a topic of three records, and what a simulated Spark does with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.kctl.conftest import Ran

Run = Callable[..., Ran]

JOB = """
version: 1
name: NAME
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [NAME]}
sink: {type: none}
"""
HELLO = 'channel = Channel(sys.argv[-1]); channel.send(Started(application="a", spark="4.0.0", pid=os.getpid()))\n'
BATCH = "Batch(batch=0, start={topic: {0: 0}}, end={topic: {0: 3}}, rows_read=3, rows_written=3, seconds=0.1)"
WORK = f"{HELLO}topic = channel.plan.job.source.topics[0]; channel.send(Query([])); channel.send({BATCH})\n"


def is_gone(pid: int) -> bool:
    """Or is a zombie, which has nobody looks after orphans."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def wait_for(path: Path) -> None:
    for _ in range(400):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} does not appear")
