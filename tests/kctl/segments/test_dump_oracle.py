"""dump-segment --kafka-format beside the dump tool of Kafka 3.9 itself, over all of Kafka's own files."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kctl.conftest import Kctl
from tests.kctl.segments.metadata_log import write_metadata
from tests.kctl.segments.new_groups import write_log
from tests.oracle.kafka import VERSIONS, missing, tool

LOGS = Path(__file__).parents[2] / "golden" / "logs"
LOG_FILES = (
    *sorted(LOGS.glob("main/[!_]*/*.log")),
    *sorted(LOGS.glob("old-formats/*/*.log")),
    *sorted(LOGS.glob("damaged/before/dmg-torn*/*.log")),
)
INDEXES = sorted(LOGS.glob("main/[!_]*/*index"))
OF_SEGMENTS = (*INDEXES, *sorted(LOGS.glob("main/*/*.snapshot")))
BAD_INDEXES = sorted(LOGS.glob("damaged/before/dmg-bad*/*index"))
CASES = {
    "batches": ([*LOG_FILES, *sorted(LOGS.glob("damaged/before/dmg-flip*/*.log"))], [], ["--batches"]),
    "records": (LOG_FILES, ["--deep-iteration"], ["--values", "none"]),
    "contents": (LOG_FILES, ["--print-data-log"], []),
    "contents only": (LOG_FILES, ["--print-data-log", "--skip-record-metadata"], ["--skip-record-metadata"]),
    "neither": (
        LOG_FILES,
        ["--deep-iteration", "--skip-record-metadata"],
        ["--values", "none", "--skip-record-metadata"],
    ),
    "the first bytes": (LOG_FILES, ["--print-data-log", "--max-bytes", "1000"], ["--max-bytes", "1000"]),
    "offsets": (sorted(LOGS.glob("main/__consumer_offsets-*/*.log")), ["--offsets-decoder"], []),
    "transactions": (sorted(LOGS.glob("main/__transaction_state-*/*.log")), ["--transaction-log-decoder"], []),
    "raw": (sorted(LOGS.glob("main/__*/*.log")), ["--print-data-log"], ["--decode", "raw"]),
    "indexes": (OF_SEGMENTS, [], []),
    "verified indexes": (INDEXES, ["--verify-index-only"], ["--verify-index-only"]),
    "sane indexes": (INDEXES, ["--index-sanity-check"], ["--index-sanity-check"]),
    "bad indexes": (BAD_INDEXES, [], []),
    "bad indexes verified": (BAD_INDEXES, ["--verify-index-only"], ["--verify-index-only"]),
}

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


@pytest.mark.parametrize("case", CASES)
def test_prints_what_kafka_prints(kctl: Kctl, case: str) -> None:
    files, theirs, ours = CASES[case]
    assert len(files) > 1
    compare(kctl, files, theirs, ours)


@pytest.mark.parametrize("version", VERSIONS)
def test_new_groups(kctl: Kctl, tmp_path: Path, version: str) -> None:
    compare(kctl, [write_log(tmp_path / "__consumer_offsets-0")], ["--offsets-decoder"], [], version)


def test_metadata_of_a_kraft_cluster(kctl: Kctl, tmp_path: Path) -> None:
    """One record of each kind there is."""
    directory = tmp_path / "__cluster_metadata-0"
    compare(kctl, [write_metadata(directory)], ["--cluster-metadata-decoder"], [], "4.3")


def compare(kctl: Kctl, files: Sequence[Path], theirs: list[str], ours: list[str], version: str = "3.9") -> None:
    if reason := missing(version):
        pytest.skip(reason)
    words = ["--files", ",".join(map(str, files)), *theirs]
    real = subprocess.run(tool(version, "dump-log", *words), capture_output=True, timeout=120, check=True)
    ran = kctl("dump-segment", "--kafka-format", *ours, *files)
    expected = real.stdout.decode("utf-8", "replace").split("\n")
    found = ran.out.split("\n")
    for number, (line, wanted) in enumerate(zip(found, expected, strict=False)):
        assert line == wanted, f"line {number} of {len(expected)}"
    assert len(found) == len(expected)
    # Theirs come in the order of a hash table of files, ours in that of the files; ours also says what is damaged.
    complaints = sorted(line for line in ran.err.splitlines() if not line.startswith("damaged: "))
    assert complaints == sorted(real.stderr.decode().splitlines())
