"""check-log's prediction of a broker's next start, beside what Kafka did with the same damage."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.config import several
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


def of_broker(directory: Path, broker: int, cluster: str = "c") -> Path:
    """A log directory of it, with a partition."""
    put(directory, "dmg-clean-0", 89)
    (directory / "meta.properties").write_text(f"version=0\nbroker.id={broker}\ncluster.id={cluster}\n")
    return directory


def test_directories_of_one_broker_are_compared(kctl: Kctl, tmp_path: Path) -> None:
    one, two = of_broker(tmp_path / "one", 1), of_broker(tmp_path / "two", 1)
    ran = kctl("check-log", "-o", "csv", "--columns", "file,problem", one, two, "--jobs", 2)
    assert ran.code == Exit.FINDINGS
    assert ran.out.splitlines()[1:] == [f"{two}/dmg-clean-0,is in {one} too"]
    assert ran.err.startswith("2 partitions, ")


@pytest.mark.parametrize(
    ("first", "second", "problems"),
    [
        ((1, "c"), (2, "c"), []),
        ((1, "c"), (2, "d"), []),
        ((1, "c"), (1, "d"), ["broker.id 1 and cluster.id d, where ONE has c"]),
        ((1, "c"), None, ["is in ONE too", "is missing"]),
        (None, (1, "c"), ["is in ONE too", "is missing"]),
    ],
)
def test_replicas_of_several_brokers_are_not_there_twice(
    kctl: Kctl, tmp_path: Path, first: tuple[int, str] | None, second: tuple[int, str] | None, problems: list[str]
) -> None:
    for name, identity in (("one", first), ("two", second)):
        of_broker(tmp_path / name, *(identity or (1, "c")))
        if identity is None:
            (tmp_path / name / "meta.properties").unlink()
    found = findings(kctl, tmp_path / "one", tmp_path / "two")
    assert sorted(item["problem"].replace(str(tmp_path / "one"), "ONE") for item in found) == problems


def test_several_brokers_are_summed_up_one_by_one(kctl: Kctl, tmp_path: Path) -> None:
    one, two = of_broker(tmp_path / "one", 1), of_broker(tmp_path / "two", 2)
    (two / "lost+found").mkdir()
    told = re.sub(r" [\d.]+ KB", " SIZE", kctl("check-log", one, two).err).splitlines()
    assert told[:2] == [
        f"broker 1 of cluster c: 1 partition, SIZE, 0 findings in {one}",
        f"broker 2 of cluster c: 1 partition, SIZE, 1 finding in {two}",
    ]
    assert told[2].startswith("2 partitions, SIZE, 1 finding, ")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The data directory of `kafkad --brokers 3`; the second broker has lost a meta.properties."""
    of_broker(tmp_path, 0)
    of_broker(tmp_path / several.DIRECTORY / "1", 1)
    of_broker(tmp_path / several.DIRECTORY / "10", 10)
    (tmp_path / several.DIRECTORY / "1" / "meta.properties").unlink()
    (tmp_path / several.DIRECTORY / "12").mkdir()
    return tmp_path


def test_the_brokers_of_a_host_are_all_checked(kctl: Kctl, host: Path) -> None:
    (host / "brokers" / "10" / "dmg-clean-0" / f"{0:020d}.index").unlink()
    found = [(item["file"].removeprefix(f"{host}/"), item["problem"]) for item in findings(kctl, host)]
    assert found == [
        ("brokers/1/meta.properties", "is missing"),
        (f"brokers/10/dmg-clean-0/{0:020d}.index", "is missing"),
    ]
    assert "broker 10 of cluster c: 1 partition, " in kctl("check-log", host, host / "brokers" / "10").err
    assert kctl("check-log", host, host / "brokers" / "10").err.count("broker 10") == 1


def test_the_first_broker_of_a_host_may_have_no_partition(kctl: Kctl, host: Path) -> None:
    shutil.rmtree(host / "dmg-clean-0")
    (host / "recovery-point-offset-checkpoint").unlink()
    assert [item["problem"] for item in findings(kctl, host)] == ["is missing"]
    ran = kctl("dump-segment", host)
    assert ran.code == Exit.NOT_FOUND
    assert f"{host}/brokers/1 is of another broker of the host" in ran.err


def test_a_directory_that_is_called_as_that_of_a_hosts_brokers_is_a_finding(kctl: Kctl, tmp_path: Path) -> None:
    of_broker(tmp_path, 0)
    (tmp_path / "brokers" / "12").mkdir(parents=True)
    [found] = findings(kctl, tmp_path)
    assert (found["file"], found["problem"]) == (f"{tmp_path}/brokers", "its name is not that of a partition")


def test_what_is_not_printed_of_a_host_is_named(kctl: Kctl, host: Path) -> None:
    told = kctl("dump-segment", host, "--max-records", 1).err
    for broker in (1, 10):
        assert f"{host}/brokers/{broker} is of another broker of the host: nothing of it was printed\n" in told
