"""How fast a log is compacted, and in how much memory: the worker's own code over generated segments, in CPU time.

python -m tests.bench.compaction [--records 10000000] [--size 100] [--keys 1000000] [--directory DIR]
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kafkad.cleaner.compact import Compaction
from kafkad.clock import SystemClock
from kafkad.log.compaction import CompactionJob, SegmentToClean
from kafkad.log.files import Files
from kafkad.wire.records import BatchHeader, assemble_batch, write_varint

SEGMENT_BYTES = 256 << 20
BATCH_BYTES = 16 * 1024
NOW_MS = 1_700_000_000_000


def batches(records: int, size: int, keys: int, seed: int = 1) -> Iterator[bytearray]:
    """Records of `size` bytes on the disk, with keys of 12 bytes at random, in the batches of a busy producer."""
    choose = random.Random(seed).randrange
    per_batch = max(1, BATCH_BYTES // size)
    heads, tails = _around_the_key(per_batch, size)
    for base in range(0, records, per_batch):
        count = min(per_batch, records - base)
        body = b"".join([b"%bkey-%08d%b" % (heads[i], choose(keys), tails[i]) for i in range(count)])
        yield assemble_batch(BatchHeader(base, 0, 0, 2, 0, 0, count - 1, NOW_MS, NOW_MS + 9, -1, -1, -1, count), body)


def _around_the_key(count: int, size: int) -> tuple[list[bytes], list[bytes]]:
    heads, tails = [], []
    for i in range(count):
        inner = b"\0" + write_varint(i % 10) + write_varint(i) + write_varint(12)
        length = size - len(write_varint(size))
        value = length - len(inner) - 12 - 1
        value -= len(write_varint(value))
        tail = write_varint(value) + bytes(value) + b"\0"
        heads.append(write_varint(len(inner) + 12 + len(tail)) + inner)
        tails.append(tail)
    return heads, tails


def write_log(directory: Path, records: int, size: int, keys: int) -> tuple[SegmentToClean, ...]:
    segments: list[SegmentToClean] = []
    file = None
    written = base = offset = 0
    for batch in batches(records, size, keys):
        if file is None or written + len(batch) > SEGMENT_BYTES:
            if file is not None:
                file.close()
                segments.append(SegmentToClean(base, written))
            base, written = offset, 0
            file = (directory / f"{base:020d}.log").open("wb")
        file.write(batch)
        written += len(batch)
        offset += int.from_bytes(batch[57:61], "big")
    assert file is not None
    file.close()
    return (*segments, SegmentToClean(base, written))


def compact(directory: str, records: int) -> None:
    """In a process of its own, for its memory to be seen."""
    segments = tuple(
        SegmentToClean(int(path.name[:20]), path.stat().st_size) for path in sorted(Path(directory).glob("*.log"))
    )
    job = CompactionJob(
        directory=directory,
        segments=segments,
        later_transactions=(),
        first_dirty=0,
        upto=records,
        now_ms=NOW_MS,
        last_of_producer={},
        delete_retention_ms=86_400_000,
        max_message_bytes=1 << 20,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=128 << 20,
        load_factor=0.9,
        io_buffer_bytes=512 * 1024,
        max_bytes_per_second=float("inf"),
    )
    started, cpu = time.monotonic(), time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = Compaction(job, Files(), SystemClock(), lambda count: None, lambda new: None).run()
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    size = sum(segment.size for segment in segments)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{size >> 20} MiB, {records} records, {result.stats.records_written} stay, next dirty {result.next_dirty}: "
        f"{size / cpu / 1e6:.0f} MB/s of CPU ({cpu:.1f} s, in pass 1 of it {result.stats.map_seconds / seconds:.0%}), "
        f"memory {before >> 10} → {after >> 10} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, help="where the log is, or where it is to be made and left")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.directory or Path(scratch)
        if not any(directory.glob("*.log")):
            directory.mkdir(exist_ok=True)
            write_log(directory, arguments.records, arguments.size, arguments.keys)
        code = "import sys; from tests.bench.compaction import compact; compact(sys.argv[1], int(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", code, directory, str(arguments.records)], check=True)


if __name__ == "__main__":
    main()
