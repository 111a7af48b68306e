"""dump-index and check-log, on Kafka's own files."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from kafkad.wire.records import Record, assemble_batch, build_batch, encode_records, read_header
from kctl.errors import Exit
from tests.kctl.conftest import Kctl

LOGS = Path(__file__).parents[2] / "golden" / "logs"
MAIN = LOGS / "main"
BEFORE = LOGS / "damaged" / "before"
FINDINGS = {
    "dmg-clean-0": set(),
    "dmg-torn-0": {"00000000000000000089.log", "00000000000000000100.snapshot"},
    "dmg-torn-header-0": {"00000000000000000089.log", "00000000000000000100.snapshot"},
    "dmg-zerotail-0": {"00000000000000000089.log"},
    "dmg-flip-last-0": {"00000000000000000089.log"},
    "dmg-flip-last-tail-0": {"00000000000000000089.log"},
    "dmg-flip-old-0": {"00000000000000000009.log"},
    "dmg-flip-old-safe-0": {"00000000000000000009.log"},
    "dmg-noindex-0": {"00000000000000000009.index", "00000000000000000009.timeindex"},
    "dmg-badindex-0": {"00000000000000000009.index", "00000000000000000044.index"},
    "dmg-badindex-safe-0": {"00000000000000000009.index", "00000000000000000044.index"},
    "dmg-badtimeindex-0": {"00000000000000000009.timeindex"},
    "dmg-badsnapshot-0": {"00000000000000000100.snapshot"},
    "dmg-nosnapshot-0": {"00000000000000000009.snapshot"},
}


def findings(kctl: Kctl, *arguments: object) -> list[dict[str, str]]:
    ran = kctl("check-log", "-o", "json", *arguments)
    items: list[dict[str, str]] = json.loads(ran.out)["items"]
    assert ran.code == (Exit.FINDINGS if items else Exit.DONE)
    return items


@pytest.mark.parametrize("partition", sorted(path.name for path in MAIN.iterdir() if path.is_dir()))
def test_sound_partition(kctl: Kctl, partition: str) -> None:
    assert findings(kctl, MAIN / partition, "--deep") == []


@pytest.mark.parametrize(("partition", "files"), FINDINGS.items())
def test_damaged_partition(kctl: Kctl, partition: str, files: set[str]) -> None:
    found = findings(kctl, BEFORE / partition)
    assert {Path(item["file"]).name for item in found} == files
    severity = "warn" if partition == "dmg-nosnapshot-0" else "error"
    assert all(item["severity"] == severity and item["action"] for item in found)


@pytest.mark.parametrize("partition", ["dmg-leftover-0", "dmg-swap-0", "dmg-swap-incomplete-0"])
def test_leftovers(kctl: Kctl, partition: str) -> None:
    found = findings(kctl, BEFORE / partition)
    assert found
    assert {item["severity"] for item in found} == {"warn"}
    assert {Path(item["file"]).suffix for item in found} <= {".cleaned", ".swap"}


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    for name in ("tx-0", "codec-gzip-0"):
        shutil.copytree(MAIN / name, tmp_path / name)
    shutil.copy(MAIN / "meta.properties", tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\ntx 0 281\ncodec-gzip 0 250\n")
    return tmp_path


def test_sound_log_directory(kctl: Kctl, log_directory: Path) -> None:
    ran = kctl("check-log", log_directory)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("2 partitions, ") and ", 0 findings, " in ran.err


def test_log_directory_with_everything_wrong(kctl: Kctl, log_directory: Path) -> None:
    uid = "0123456789abcdef0123456789abcdef"
    for suffix in ("future", "stray"):
        shutil.copytree(MAIN / "empty-0", log_directory / f"empty-0.{uid}-{suffix}")
    (log_directory / "recovery-point-offset-checkpoint").write_text("0\n2\ntx 0 282\ngone 3 1\n")
    (log_directory / "replication-offset-checkpoint").write_text("0\n7\n")
    (log_directory / "meta.properties").unlink()
    (log_directory / "tx-0" / "00000000000000000999.index").touch()
    (log_directory / "tx-0" / "partition.metadata").write_text("version: 7\n")
    (log_directory / "lost+found").mkdir()
    ran = kctl("check-log", log_directory, "-o", "csv", "--jobs", 2)
    assert ran.code == Exit.FINDINGS
    found = {(Path(row["file"]).name, row["problem"]) for row in csv.DictReader(io.StringIO(ran.out))}
    assert found == {
        (f"empty-0.{uid}-future", "a copy that is being made, to move the partition here"),
        (f"empty-0.{uid}-stray", "put aside by a broker that did not know the partition"),
        ("recovery-point-offset-checkpoint", "282 for tx-0, whose log ends at 281"),
        ("recovery-point-offset-checkpoint", "names gone-3, which is not there"),
        ("replication-offset-checkpoint", "line 2: 7 entries were announced, 0 are there"),
        ("meta.properties", "is missing"),
        ("lost+found", "its name is not that of a partition"),
        ("00000000000000000999.index", "belongs to no segment"),
        ("partition.metadata", "line 1: 'version: 7' where 'version: 0' was expected"),
    }


def test_what_waits_for_its_deletion_is_summed_up_and_no_finding(kctl: Kctl, log_directory: Path) -> None:
    doomed = log_directory / f"gone-0.{'a' * 32}-delete"
    doomed.mkdir()
    (doomed / f"{0:020d}.log").write_bytes(b"half removed" * 1000)
    ran = kctl("check-log", log_directory)
    assert (ran.code, ran.out) == (0, "")
    summed_up, last = ran.err.splitlines()
    assert summed_up == f"{log_directory}: 1 partition is being deleted, 12.0 KB"
    assert last.startswith("2 partitions, ") and ", 0 findings, " in last
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.index.deleted"):
        (log_directory / "tx-0" / name).write_bytes(b"1234")
    ran = kctl("check-log", log_directory, "-o", "json", "--jobs", 2)
    assert (ran.code, json.loads(ran.out)["items"]) == (0, [])
    assert f"{log_directory}: 1 partition and 2 files are being deleted, 12.0 KB" in ran.err
    assert f"{log_directory}/tx-0: 2 files are being deleted, 8 B" in kctl("check-log", log_directory / "tx-0").err
    both = kctl("check-log", doomed, log_directory)
    assert both.code == Exit.FINDINGS and f"{doomed}/" in both.out, "who asks for it alone gets it checked"


def test_a_directory_in_which_all_is_being_deleted(kctl: Kctl, log_directory: Path) -> None:
    for name in ("tx-0", "codec-gzip-0"):
        (log_directory / name).rename(log_directory / f"{name}.{'a' * 32}-delete")
    assert "tx 0 " in (log_directory / "recovery-point-offset-checkpoint").read_text()
    ran = kctl("check-log", log_directory, "--jobs", 2)
    assert ran.code == 0 and f"{log_directory}: 2 partitions are being deleted, " in ran.err


def test_deep_check_finds_records_that_a_right_checksum_covers(kctl: Kctl, tmp_path: Path) -> None:
    batch = build_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")])
    header = read_header(memoryview(batch), 0)
    lying = assemble_batch(header._replace(record_count=3), encode_records([Record(0, 1, None, b"a")], 0, 1))
    partition = tmp_path / "lies-0"
    partition.mkdir()
    base = "00000000000000000000"
    (partition / f"{base}.log").write_bytes(lying)
    (partition / f"{base}.index").touch()
    (partition / f"{base}.timeindex").write_bytes(struct.pack(">qi", 1, 1))
    assert findings(kctl, partition) == []
    (found,) = findings(kctl, partition, "--deep")
    assert "the batch with offset 0 at byte 0" in found["problem"]


def test_index_of_an_active_segment_may_end_in_zeros(kctl: Kctl, log_directory: Path) -> None:
    """As Kafka preallocates it."""
    for index in (log_directory / "tx-0").glob("00000000000000000261.*index"):
        if index.suffix != ".txnindex":
            index.write_bytes(index.read_bytes().ljust(480, b"\0"))
    assert findings(kctl, log_directory) == []
    active = log_directory / "tx-0" / "00000000000000000261.index"
    before = kctl("dump-index", active).out
    for suffix, size in ((".index", 10_485_760), (".timeindex", 10_485_756)):
        os.truncate(active.with_suffix(suffix), size)  # a hole, of which nothing is read
    assert findings(kctl, log_directory) == []
    assert kctl("dump-index", active).out == before


def test_no_partition(kctl: Kctl, tmp_path: Path) -> None:
    assert kctl("check-log", tmp_path).code == Exit.NOT_FOUND


# --- dump-index


def test_indexes_as_json(kctl: Kctl) -> None:
    def items(name: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(kctl("dump-index", MAIN / "tx-0" / name, "-o", "json").out)["items"]
        return found

    assert items("00000000000000000030.index")[0] == {"entry": 0, "offset": 37, "position": 533}
    assert items("00000000000000000030.timeindex") == [
        {"entry": 0, "timestamp": "2026-11-21T06:17:47.514Z", "timestamp_ms": 1795241867514, "offset": 31}
    ]
    assert items("00000000000000000030.txnindex") == [
        {"producer_id": 4, "first_offset": 20, "last_offset": 31, "last_stable_offset": 32}
    ]
    assert items("00000000000000000030.snapshot")[0]["transaction_first_offset"] == 0


def test_lookup_walks_to_the_answer(kctl: Kctl) -> None:
    index = MAIN / "tx-0" / "00000000000000000030.index"
    ran = kctl("dump-index", index, "--lookup", 60)
    assert [line.split() for line in ran.out.splitlines()[1:]] == [
        ["1", "0", "37", "before", "37", "533"],
        ["2", "2", "53", "before", "53", "1952"],
        ["3", "3", "63", "after", "63", "2730"],
        ["4", "2", "53", "answer", "53", "1952"],
    ]
    assert kctl("dump-index", index, "--lookup", 31).out.endswith(
        "answer: the start of the segment       -         -\n"
    )
    assert kctl("dump-index", index, "--lookup", "@1700000000000").code == Exit.USAGE
    times = MAIN / "tx-0" / "00000000000000000075.timeindex"
    assert kctl("dump-index", times, "--lookup", "@1700002067671").out.splitlines()[-1].split()[3:5] == ["answer", "91"]


def test_verify(kctl: Kctl) -> None:
    sound = kctl("dump-index", "--verify", *sorted((MAIN / "tx-0").glob("*index")))
    assert (sound.code, sound.out) == (0, "")
    bad = BEFORE / "dmg-badindex-0" / "00000000000000000009.index"
    ran = kctl("dump-index", "--verify", bad)
    assert ran.code == Exit.FINDINGS
    assert ran.out.splitlines()[1].split(maxsplit=1) == [str(bad), "entry 3 does not grow: 20, then -5"]


def test_files_of_several_kinds(kctl: Kctl) -> None:
    files = [MAIN / "tx-0" / name for name in ("00000000000000000030.index", "leader-epoch-checkpoint")]
    items = json.loads(kctl("dump-index", *files, "-o", "json").out)["items"]
    assert (items[0]["file"], items[0]["position"]) == (str(files[0]), 533)
    assert (items[-1]["file"], items[-1]["start_offset"]) == (str(files[1]), 281)
    lines = kctl("dump-index", *files).out.splitlines()
    assert lines[0] == str(files[0])
    assert lines[lines.index("") + 1 :][:2] == [str(files[1]), "LEADER-EPOCH  START-OFFSET"]


def test_file_of_no_known_kind(kctl: Kctl, tmp_path: Path) -> None:
    assert kctl("dump-index", tmp_path / "notes.txt").code == Exit.NOT_FOUND
    (tmp_path / "notes.txt").touch()
    assert kctl("dump-index", tmp_path / "notes.txt").code == Exit.USAGE


def test_missing_snapshots_are_told_once_and_never_below_the_start_of_the_log(kctl: Kctl, tmp_path: Path) -> None:
    partition = tmp_path / "dmg-nosnapshot-0"
    shutil.copytree(BEFORE / partition.name, partition)
    (tmp_path / ".kafka_cleanshutdown").touch()
    (found,) = findings(kctl, partition)
    assert found["problem"] == "is missing, and 4 others of this partition"
    assert "written twice" in found["at_start"], "after a clean stop nobody reads the producers from the log"
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ndmg-nosnapshot 0 49\n")
    (found,) = findings(kctl, partition)
    assert Path(found["file"]).name == "00000000000000000082.snapshot"
    (partition / "00000000000000000082.snapshot").touch()
    (partition / "00000000000000000089.snapshot").touch()
    assert not [item for item in findings(kctl, partition) if "is missing" in item["problem"]]


@pytest.mark.parametrize(
    ("newest", "missing"),
    [(82, ["00000000000000000089.snapshot"]), (89, []), (100, [])],
)
def test_snapshots_before_the_newest_that_is_whole_are_not_missed(
    kctl: Kctl, tmp_path: Path, newest: int, missing: list[str]
) -> None:
    """A roll on a full disk does without one, and no clean start makes it: nobody needs it any more."""
    partition = tmp_path / "dmg-nosnapshot-0"
    shutil.copytree(BEFORE / partition.name, partition)
    whole = next(MAIN.glob("tx-0/*.snapshot"))
    (partition / "00000000000000000049.snapshot").touch()
    shutil.copy(whole, partition / f"{newest:020}.snapshot")
    found = [item for item in findings(kctl, partition) if item["problem"].startswith("is missing")]
    assert [Path(item["file"]).name for item in found] == missing


def test_empty_file_of_leader_epochs_has_no_entries(kctl: Kctl, log_directory: Path) -> None:
    """Kafka makes it so, and writes the first epoch with the first batch."""
    shutil.copytree(MAIN / "empty-0", log_directory / "empty-0")
    epochs = log_directory / "empty-0" / "leader-epoch-checkpoint"
    epochs.write_bytes(b"")
    assert findings(kctl, log_directory) == []
    assert kctl("dump-index", "-o", "json", epochs).code == Exit.DONE
    (log_directory / "tx-0" / "leader-epoch-checkpoint").write_bytes(b"")
    (found,) = findings(kctl, log_directory)
    assert found["problem"] == "has no entries, and the log has batches of epoch 0 from offset 0 on"


def test_partition_without_segments_is_a_finding_among_the_others(kctl: Kctl, log_directory: Path) -> None:
    (log_directory / "bare-0").mkdir()
    (log_directory / "tx-0" / "00000000000000000999.index").touch()
    assert {Path(item["file"]).name: item["problem"] for item in findings(kctl, log_directory)} == {
        "bare-0": "no segment",
        "00000000000000000999.index": "belongs to no segment",
    }
    (found,) = findings(kctl, log_directory / "bare-0")
    assert found["problem"] == "no segment"


def test_file_that_cannot_be_read_is_a_finding_among_the_others(kctl: Kctl, log_directory: Path) -> None:
    """A directory of that name, as root may read any file."""
    log = log_directory / "tx-0" / "00000000000000000000.log"
    log.unlink()
    log.mkdir()
    (log_directory / "codec-gzip-0" / "00000000000000000999.index").touch()
    found = {Path(item["file"]).name: item["problem"] for item in findings(kctl, log_directory)}
    assert found.pop(log.name) == "cannot be read: is no regular file"
    assert found == {"00000000000000000999.index": "belongs to no segment"}
