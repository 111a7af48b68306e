"""dump-segment in the words of Kafka's own tool, byte for byte what that tool printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl

LOGS = Path(__file__).parents[2] / "golden" / "logs"
PARTITIONS = sorted(path for path in (LOGS / "expected").glob("*/*") if not path.parent.name.startswith("damaged"))
NEW_GROUPS = sorted((LOGS.parent / "newgroups" / "logs").iterdir())
DAMAGED = sorted((LOGS / "expected" / "damaged-after").glob("*"))


@pytest.mark.parametrize("expected", PARTITIONS, ids=lambda path: "/".join(path.parts[-2:]))
def test_partition(expected: Path, kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS / expected.relative_to(LOGS / "expected"))
    _compare(expected, kctl)


@pytest.mark.parametrize("expected", DAMAGED, ids=lambda path: path.name)
def test_partition_that_was_damaged_and_recovered(expected: Path, kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS / "damaged" / "after" / expected.name)
    _compare(expected, kctl)


@pytest.mark.parametrize("partition", NEW_GROUPS, ids=lambda path: path.name)
def test_partition_with_groups_of_the_new_protocols(
    partition: Path, kctl: Kctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumer groups, share groups, and classic members in a consumer group, as Kafka 4.3 wrote and printed them."""
    monkeypatch.chdir(partition.parent)
    (log,) = partition.glob("*.log")
    ran = kctl("dump-segment", log.relative_to(partition.parent), "--kafka-format")
    assert (ran.code, ran.out) == (0, log.with_suffix(".log.txt").read_text())


def _compare(expected: Path, kctl: Kctl) -> None:
    # Kafka's tool was run without contents for large-0 only.
    contents = ["--values", "none"] if expected.name == "large-0" else []
    files = sorted(expected.iterdir())
    assert files
    for file in files:
        ran = kctl("dump-segment", file.stem, "--kafka-format", *contents)
        said = ran.out + ran.err.replace(f"{Path.cwd()}/", "")  # there the expected texts have only the name
        assert (ran.code, said) == (0, file.read_bytes().decode()), file


def test_torn_tail_is_told_as_kafka_tells_it(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS / "damaged" / "before" / "dmg-torn-0")
    ran = kctl("dump-segment", "00000000000000000089.log", "--kafka-format", "--batches")
    assert ran.code == Exit.FINDINGS
    assert ran.out.endswith("\nFound 58 invalid bytes at the end of 00000000000000000089.log\n")
