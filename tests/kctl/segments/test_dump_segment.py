"""dump-segment for people and programs, on Kafka's own files: whole, damaged, in use."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkad.log import batches
from kafkad.wire.records import Record, build_batch
from kctl.errors import Exit
from kctl.segments.decoders import decode_offsets
from kctl.segments.ranges import Range, TimeRange
from tests.kctl.conftest import Kctl

LOGS = Path(__file__).parents[2] / "golden" / "logs"
MAIN = LOGS / "main"
BEFORE = LOGS / "damaged" / "before"

Records = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def records(kctl: Kctl) -> Records:
    def call(*arguments: object) -> list[dict[str, Any]]:
        ran = kctl("dump-segment", "-o", "json", *arguments)
        assert (ran.code, ran.err) == (0, "")
        return [json.loads(line) for line in ran.out.splitlines()]

    return call


def test_every_codec_and_format_gives_its_records(records: Records) -> None:
    for name in (
        "main/codec-none-0",
        "main/codec-gzip-0",
        "main/codec-snappy-0",
        "main/codec-lz4-0",
        "main/codec-zstd-0",
    ):
        assert [row["offset"] for row in records(LOGS / name)] == list(range(250)), name
    for partition in (LOGS / "old-formats").glob("old-rdk-*"):
        assert [row["value"] for row in records(partition)][:2] == ["rdk value 0 " * 4, "rdk value 1 " * 4]


def test_record_has_every_field(records: Records) -> None:
    (row,) = records(MAIN / "tx-0", "--offsets", "38")
    assert row == {
        "offset": 38,
        "timestamp": "2023-11-14T22:46:53.777Z",
        "timestamp_ms": 1700002013777,
        "key": "k27",
        "value": "v2011 warehouse invoice 42.5 order null naïve null\n",
        "headers": [{"key": "", "value": ""}, {"key": "schlüssel", "value": {"base64": "AP9/gA=="}}],
        "file": str(MAIN / "tx-0" / "00000000000000000030.log"),
        "position": 803,
        "batch_base_offset": 38,
        "producer_id": 5,
        "producer_epoch": 0,
        "sequence": 0,
        "leader_epoch": 0,
        "transactional": True,
        "control": False,
        "codec": "none",
        "crc_ok": True,
    }


@pytest.mark.parametrize("partition", ["tx-0", "codec-zstd-0", "compact-0"])
def test_ranges_choose_as_if_everything_had_been_read(records: Records, partition: str) -> None:
    everything = records(MAIN / partition)
    for start, end in ((0, 10), (29, 31), (70, 200), (199, 5000)):
        chosen = records(MAIN / partition, "--offsets", f"{start}:{end}")
        assert chosen == [row for row in everything if start <= row["offset"] < end]
    times = sorted(row["timestamp_ms"] for row in everything)
    start, end = times[len(times) // 3], times[len(times) // 2]
    chosen = records(MAIN / partition, "--time", f"{start}:{end}")
    assert chosen == [row for row in everything if start <= row["timestamp_ms"] < end]


def test_key_producer_and_count(records: Records) -> None:
    assert {row["key"] for row in records(MAIN / "tx-0", "--key", "k4?")} <= {f"k4{digit}" for digit in range(10)}
    assert {row["producer_id"] for row in records(MAIN / "tx-0", "--producer", 5)} == {5}
    assert len(records(MAIN / "tx-0", "--max-records", 3)) == 3


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("hex", "763939"),
        ("base64", "djk5"),
        ("none", None),
        ("text", "v99"),
        ("json", "v99"),
    ],
)
def test_values(kctl: Kctl, tmp_path: Path, how: str, value: str | None) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, 0, b'{"a":[1]}', b"v99"), Record(1, 0, b"\xff", None)]))
    ran = kctl("dump-segment", path, "-o", "json", "--values", how, "--key-format", "json")
    first, second = (json.loads(line) for line in ran.out.splitlines())
    assert (first["key"], first["value"]) == ({"a": [1]}, value)
    assert (second["key"], second["value"]) == ({"base64": "/w=="}, None)
    table = kctl("dump-segment", path, "--no-headers", "--utc").out.splitlines()
    assert table[1].split() == ["1", "1970-01-01", "00:00:00.000", "0xff", "-", "-"]


def test_committed_offsets_and_groups_are_decoded(kctl: Kctl, records: Records) -> None:
    table = kctl("dump-segment", MAIN / "__consumer_offsets-0", "--utc").out.splitlines()
    assert table[0].split() == ["OFFSET", "TIME", "TYPE", "GROUP/ID", "WHAT"]
    assert table[2].split(maxsplit=3)[3] == "commit  simple-1  murmur-1 = 5 (meta é 1)"
    assert table[11].split(maxsplit=3)[3].startswith("group   group-2   gen 2 roundrobin leader first-")
    assert table[11].endswith("murmur 1") and "; first-" in table[11] and "static-2 murmur 0,2" in table[11]
    rows = records(MAIN / "__consumer_offsets-0")
    assert rows[1]["value"]["metadata"] == "meta é 1"
    assert rows[10]["value"]["members"][0]["assignment"]["assigned_partitions"] == [
        {"topic": "murmur", "partitions": [0, 2]}
    ]
    assert (rows[16]["type"], rows[16]["value"]) == ("commit", None)
    of_one = records(MAIN / "__consumer_offsets-0", "--key", "simple-?")
    assert {row["subject"] for row in of_one} == {"simple-1", "simple-4"}
    raw = records(MAIN / "__consumer_offsets-0", "--decode", "raw")
    assert raw[1]["key"].startswith("\0\1\0")


def test_transactions_are_decoded(kctl: Kctl) -> None:
    table = kctl("dump-segment", MAIN / "__transaction_state-1", "--utc").out
    assert "Ongoing producer 3 epoch 2 on __consumer_offsets-1, tx-0" in table


def test_unknown_version_of_a_decoded_record_is_shown_as_it_is(kctl: Kctl, tmp_path: Path) -> None:
    path = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build_batch([Record(0, 0, b"\x00\x63later", b"\x01\x02")]))
    ran = kctl("dump-segment", path)
    assert ran.code == 0
    assert ran.out.splitlines()[1].endswith("unknown  -         of a version that is not known: 0102")
    assert decode_offsets(Record(0, 0, b"\x00\x01\x00", None)) is None


@pytest.mark.parametrize(
    ("partition", "damage", "offsets"),
    [
        ("dmg-torn-0", "58 bytes from 881 to 939 are no batch", range(99)),
        ("dmg-torn-header-0", "30 bytes from 881 to 911 are no batch", range(99)),
        ("dmg-zerotail-0", "4096 bytes from 959 to 5,055 are no batch: zeros to the end of the file", range(100)),
        ("dmg-flip-last-0", "the batch with offset 95 at byte 493 fails its checksum", range(100)),
        ("dmg-flip-old-0", "the batch with offset 28 at byte 1549 fails its checksum", range(100)),
    ],
)
def test_damage_is_named_and_passed_over(kctl: Kctl, partition: str, damage: str, offsets: range) -> None:
    ran = kctl("dump-segment", BEFORE / partition, "-o", "name")
    assert ran.code == Exit.FINDINGS
    assert damage in ran.err
    found = {int(line) for line in ran.out.splitlines()}
    assert found <= set(offsets)
    assert max(found) == offsets[-1]


@pytest.mark.parametrize("at", [0, 8, 12, 16, 23, 60])
@pytest.mark.parametrize("partition", ["main/codec-lz4-0", "old-formats/old-java-v1-none-0"])
def test_reads_on_after_any_byte_was_damaged(kctl: Kctl, tmp_path: Path, at: int, partition: str) -> None:
    source = next((LOGS / partition).glob("*0000.log"))
    ran = kctl("dump-segment", source, "--batches", "-o", "json")
    whole = [json.loads(line)["position"] for line in ran.out.splitlines()]
    data = bytearray(source.read_bytes())
    data[whole[2] + at] ^= 0xFF
    path = tmp_path / source.name
    path.write_bytes(data)
    ran = kctl("dump-segment", path, "--batches", "-o", "json")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    sound = [row["position"] for row in rows if row["crc_ok"]]
    if at == 12 and partition.startswith("main"):  # the leader epoch is no part of the checksum
        assert (ran.code, sound) == (Exit.DONE, whole)
    else:
        assert (ran.code, sound) == (Exit.FINDINGS, whole[:2] + whole[3:])


def test_batches(kctl: Kctl) -> None:
    ran = kctl("dump-segment", MAIN / "tx-0" / "00000000000000000030.log", "--batches", "--limit", 1)
    assert ran.out.splitlines() == [
        "OFFSETS  COUNT  POSITION  SIZE  CODEC  CRC  EPOCH  PRODUCER  SEQ  FLAGS",
        "30           1         0    78  none   ok       0         3   -1  transactional,control",
    ]


@pytest.mark.parametrize("block", [64, 1000, 1 << 20])
@pytest.mark.parametrize("directory", ["main", "old-formats", "damaged/before"])
def test_text_of_many_batches_is_that_of_each(
    kctl: Kctl, directory: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a block that is read ends: inside headers, inside batches, between them."""
    monkeypatch.setattr(batches, "_CHUNK", block)
    segments = [path for path in sorted((LOGS / directory).rglob("*.log")) if path.stat().st_size]
    assert segments
    for path in segments:
        line = ("dump-segment", path, "--kafka-format", "--batches")
        assert kctl(*line) == kctl(*line, "--offsets", "0:"), path  # with a range each batch is looked at


def test_other_files(kctl: Kctl) -> None:
    ran = kctl("dump-segment", MAIN / "meta.properties", MAIN / "tx-0" / "leader-epoch-checkpoint")
    assert ran.code == 0
    assert "broker.id   1\n" in ran.out and "LEADER-EPOCH  START-OFFSET\n" in ran.out
    ran = kctl("dump-segment", BEFORE / "dmg-badsnapshot-0" / "00000000000000000100.snapshot")
    assert ran.code == Exit.FINDINGS
    assert ran.err.endswith("00000000000000000100.snapshot: its checksum does not fit\n")


def test_index_that_lies_costs_time_and_nothing_else(kctl: Kctl, tmp_path: Path) -> None:
    partition = tmp_path / "tx-0"
    shutil.copytree(MAIN / "tx-0", partition)
    (partition / "00000000000000000030.index").write_bytes(b"\x00\x00\x00\x01\x00\x00\x00\x07" * 3 + b"\0" * 64)
    ran = kctl("dump-segment", partition, "--offsets", "60:63", "-o", "name")
    assert ran == (0, "60\n61\n62\n", "")


@pytest.mark.parametrize("arguments", [("nowhere.log",), ("nowhere",), ("x.index",)])
def test_missing_file(kctl: Kctl, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert kctl("dump-segment", "00000000000000000000.log").code == Exit.NOT_FOUND
    assert kctl("dump-segment", *arguments).code == Exit.NOT_FOUND
    assert kctl("dump-segment", ".").code == Exit.NOT_FOUND


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_file_that_is_missing_does_not_end_a_stream_with_another_document(kctl: Kctl, output: str) -> None:
    words = ["dump-segment", next((MAIN / "tx-0").glob("*.log"))]
    ran = kctl(*words, "nowhere.log", "-o", output)
    assert (ran.code, ran.err) == (Exit.NOT_FOUND, "error: nowhere.log: No such file or directory\n")
    assert ran.out == kctl(*words, "-o", output).out


def test_times() -> None:
    last_half_hour = TimeRange().convert("-30m:", None, None)
    assert abs(last_half_hour.start - (time.time_ns() // 1_000_000 - 1_800_000)) < 60_000
    assert TimeRange().convert(":@1970-01-01T00:00:01+00:00", None, None).end == 1000
    day = TimeRange().convert("2026-11-21T06:00:00Z:2026-11-21T07:00:00Z", None, None)
    assert day.end - day.start == 3_600_000
    assert TimeRange().convert("1700000000000:", None, None) == Range(1700000000000, 2**63)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_that_cannot_be_unpacked_is_passed_over(kctl: Kctl, tmp_path: Path, codec: str) -> None:
    source = next((MAIN / f"codec-{codec}-0").glob("*0000.log"))
    rows = [json.loads(line) for line in kctl("dump-segment", source, "--batches", "-o", "json").out.splitlines()]
    data = bytearray(source.read_bytes())
    begins, ends = rows[1]["position"] + 61, rows[2]["position"]
    data[begins:ends] = bytes(ends - begins)
    path = tmp_path / source.name
    path.write_bytes(data)
    for how in ([], ["-o", "json"], ["--kafka-format"]):
        ran = kctl("dump-segment", path, *how)
        assert ran.code == Exit.FINDINGS
        assert ran.err.startswith(f"damaged: {path}: the batch with offset {rows[1]['base_offset']} at byte ")
    offsets = {json.loads(line)["offset"] for line in kctl("dump-segment", path, "-o", "json").out.splitlines()}
    assert {rows[0]["base_offset"], rows[2]["base_offset"]} <= offsets


def test_index_that_points_before_the_file(kctl: Kctl, tmp_path: Path) -> None:
    partition = tmp_path / "tx-0"
    shutil.copytree(MAIN / "tx-0", partition)
    (partition / "00000000000000000030.index").write_bytes(b"\x00\x00\x00\x01\xff\xff\xff\x07")
    assert kctl("dump-segment", partition, "--offsets", "60:62", "-o", "name") == (0, "60\n61\n", "")


def test_nothing_that_is_damaged_is_a_defect_of_kctl(kctl: Kctl, tmp_path: Path) -> None:
    random = Random(7)
    partitions = sorted(path for path in (*MAIN.iterdir(), *(LOGS / "old-formats").iterdir()) if path.is_dir())
    for number in range(25):
        partition = tmp_path / str(number) / random.choice(partitions).name
        shutil.copytree(next(path for path in partitions if path.name == partition.name), partition)
        for file in random.sample(sorted(partition.iterdir()), 2):
            data = bytearray(file.read_bytes()) or bytearray(1)
            at = random.randrange(len(data))
            data[at : at + random.choice((0, 1, 9))] = random.randbytes(random.choice((0, 1, 9)))
            file.write_bytes(data[: random.choice((at + 1, len(data)))])
        files = sorted(partition.iterdir())
        for arguments in (
            ["dump-segment", partition],
            ["dump-segment", "--kafka-format", *files],
            ["dump-segment", partition, "--offsets", "20:40", "--time", "1700000000000:"],
            ["dump-index", *(file for file in files if file.suffix != ".log")],
            ["check-log", "--deep", partition],
        ):
            ran = kctl(*arguments)
            assert ran.code in (Exit.DONE, Exit.FINDINGS), (arguments, ran.err)


def test_metadata_of_a_kraft_cluster(kctl: Kctl) -> None:
    (snapshot,) = (MAIN.parent / "metadata" / "__cluster_metadata-0").iterdir()
    rows = [json.loads(line) for line in kctl("dump-segment", snapshot, "-o", "json").out.splitlines()]
    assert (rows[0]["type"], rows[0]["value"][:14]) == ("marker", "SnapshotHeader")
    (topic,) = [row for row in rows if row["type"] == "topic"]
    assert (topic["subject"], topic["key"], topic["value"]["name"]) == ("a", None, "a")
    partitions = [row["subject"] for row in rows if row["type"] == "partition"]
    assert partitions == [f"{topic['value']['topic_id']}-{number}" for number in range(5)]
    raw = kctl("dump-segment", snapshot, "-o", "json", "--decode", "raw", "--limit", 2).out.splitlines()
    assert "type" not in json.loads(raw[1])
    assert kctl("dump-segment", snapshot, "--offsets", "19", "-o", "name").out == "19\n"
