"""Says which disk is full, whatever Spark and the format say of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkad_etl.driver.paths import Storage, parent_and_name
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Failed

MB = 1 << 20


@contextmanager
def explaining_full_disk(files: Storage, path: str) -> Iterator[None]:
    try:
        yield
    except JobFailed:
        raise
    except Exception as error:
        if not any(sign in str(error) for sign in ("No space left on device", "Disk quota exceeded")):
            raise
        free = files.free_bytes(path if files.exists(path) else parent_and_name(path)[0]) // MB
        raise JobFailed(
            Failed(
                kind="sink",
                text=f"a disk is full: the batch was not written to {path}, which has {free} MB free",
                hints=[
                    "readers of the sink have seen none of the batch; the next run writes it again",
                    "Spark also needs working space in SPARK_LOCAL_DIRS or TMPDIR",
                ],
                trace=str(error),
            )
        ) from error
