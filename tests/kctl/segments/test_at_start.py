"""check-log's prediction of a broker's next start, beside what Kafka did with the same damage."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.log import lock
from kctl.errors import Exit
from kctl.segments import verdicts
from kctl.segments.verdicts import Start
from tests.kctl.conftest import Kctl

DAMAGED = Path(__file__).parents[2] / "golden" / "logs" / "damaged"
KNOWN = json.loads((DAMAGED / "damaged.json").read_text())
TORN = "dmg-torn-0"


def put(directory: Path, partition: str, recovery_point: int) -> Path:
    """A log directory with that partition in it."""
    shutil.copytree(DAMAGED / "before" / partition, directory / partition)
    topic, _, number = partition.rpartition("-")
    (directory / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{topic} {number} {recovery_point}\n")
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    return directory


def findings(kctl: Kctl, *arguments: object) -> list[dict[str, str]]:
    ran = kctl("check-log", "-o", "json", *arguments)
    items: list[dict[str, str]] = json.loads(ran.out)["items"]
    assert ran.code == (Exit.FINDINGS if items else Exit.DONE)
    return items


@pytest.mark.parametrize("topic", sorted(KNOWN))
def test_cuts_where_kafka_cut(kctl: Kctl, tmp_path: Path, topic: str) -> None:
    known = KNOWN[topic]
    put(tmp_path, f"{topic}-0", known["recovery_point"])
    said = [found["at_start"] for found in findings(kctl, tmp_path) if found["file"].endswith(".log")]
    ends = [int(cut[1]) for text in said if (cut := re.search(r"cuts? (?:the log )?to end at (\d+)", text))]
    assert min(ends, default=100) == known["kafka"]["log_end_offset"]


def test_after_a_clean_stop_nobody_looks(kctl: Kctl, tmp_path: Path) -> None:
    put(tmp_path, TORN, 89)
    (tmp_path / ".kafka_cleanshutdown").touch()
    found = {Path(item["file"]).suffix: item for item in findings(kctl, tmp_path)}
    assert found[".log"]["at_start"].startswith("nothing: after a clean stop")
    assert found[".log"]["action"].startswith("if another replica is in sync, stop the broker and move")


def test_the_only_replica_is_never_to_be_moved_away() -> None:
    starts = [Start(clean, False, recovery_point=50, start_offset=0) for clean in (True, False)]
    told = [verdicts.of_log(0, following, start) for start in starts for following in (None, 20, 60)]
    told += [verdicts.of_epochs(), verdicts.BROKEN_RECORDS, verdicts.NO_SEGMENT, verdicts.PAST_THE_END]
    for action in {verdict.action.removeprefix("for Kafka: ") for verdict in told}:
        assert action.startswith("if another replica ")
    assert "else leave it: kafkad serves the rest" in verdicts.BROKEN_RECORDS.action


def test_a_partition_alone_knows_the_directory_above_it(kctl: Kctl, tmp_path: Path) -> None:
    put(tmp_path, "dmg-flip-old-safe-0", 89)
    (found,) = findings(kctl, tmp_path / "dmg-flip-old-safe-0")
    assert found["at_start"] == "nothing: it is below the recovery point, 89; who reads there gets an error"
    (found,) = findings(kctl, put(tmp_path / "other", "dmg-flip-old-0", 0) / "dmg-flip-old-0")
    assert found["at_start"] == "Kafka cuts the log to end at 28 and deletes all later segments; kafkad keeps them"


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[Path]:
    """A log directory that a broker holds, with files and a partition that wait for their deletion."""
    put(tmp_path, "dmg-leftover-0", 89)
    shutil.copytree(DAMAGED / "before" / "dmg-clean-0", tmp_path / f"gone-0.{'a' * 32}-delete")
    shutil.copytree(DAMAGED / "before" / "dmg-clean-0", tmp_path / f"moves-0.{'b' * 32}-future")
    with (tmp_path / lock.LOCK).open("w") as held:
        lock.take(held.fileno())
        yield tmp_path


def test_what_a_running_broker_is_at_is_no_finding(kctl: Kctl, in_use: Path) -> None:
    assert findings(kctl, in_use) == []


def test_a_compaction_that_has_come_to_a_stop_is_one(kctl: Kctl, in_use: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = in_use.stat().st_ctime + 600
    monkeypatch.setattr("kctl.segments.check_log.time.time", lambda: later)
    found = findings(kctl, in_use)
    assert {Path(item["file"]).suffix for item in found} == {".cleaned"}
    assert {item["severity"] for item in found} == {"warn"}


def test_damage_in_the_middle_is_told_once_and_not_by_every_entry_of_the_index(kctl: Kctl, tmp_path: Path) -> None:
    put(tmp_path, "dmg-clean-0", 89)
    log = tmp_path / "dmg-clean-0" / f"{9:020d}.log"
    data = bytearray(log.read_bytes())
    data[1157 + 8 : 1157 + 12] = b"\xff\xff\xff\xff"  # the length of a batch in the middle
    log.write_bytes(data)
    (found,) = findings(kctl, tmp_path)
    assert re.fullmatch(r"\d+ bytes from 1,157 to 1,549 are no batch: .*", found["problem"]), found


def test_a_file_that_is_wrong_everywhere_does_not_fill_the_screen(kctl: Kctl, tmp_path: Path) -> None:
    put(tmp_path, "dmg-clean-0", 89)
    (tmp_path / "dmg-clean-0" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    found = findings(kctl, tmp_path)
    assert len(found) == 6
    assert re.fullmatch(r"and \d+ more of this file", found[-1]["problem"])


def test_directories_of_one_broker_are_compared(kctl: Kctl, tmp_path: Path) -> None:
    for name in "one", "two":
        put(tmp_path / name, "dmg-clean-0", 89)
    (tmp_path / "two" / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=d\n")
    ran = kctl("check-log", "-o", "csv", "--columns", "file,problem", tmp_path / "one", tmp_path / "two", "--jobs", 2)
    assert ran.code == Exit.FINDINGS
    assert ran.out.splitlines()[1:] == [
        f"{tmp_path}/two/dmg-clean-0,is in {tmp_path}/one too",
        f'{tmp_path}/two/meta.properties,"cluster.id d, where {tmp_path}/one has c"',
    ]
    assert ran.err.startswith("2 partitions, ")
