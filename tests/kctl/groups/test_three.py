"""`kctl groups` on three real brokers: beside Kafka's own tool, and with members of real clients."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, Three, until
from tests.kctl.groups.readers import SECONDS, Reader, fill
from tests.oracle.kafka import tool

QUICK = {"heartbeat.interval.ms": 500}
"""So that nobody waits for a client to learn of a rebalance."""
pytestmark = [pytest.mark.slow, pytest.mark.java]


def consumer_groups(three: Three, *words: str) -> list[str]:
    """The output of Kafka's tool."""
    command = tool("3.9", "consumer-groups", "--bootstrap-server", three.bootstrap, *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def offsets_of(lines: list[str]) -> list[str]:
    """Without what it warns of."""
    return sorted(line for line in lines if line.count(",") in (2, 3) and " " not in line)


@contextlib.contextmanager
def console_consumer(three: Three, group: str, topic: str) -> Iterator[None]:
    words = ("--bootstrap-server", three.bootstrap, "--topic", topic, "--group", group, "--from-beginning")
    process = subprocess.Popen(tool("3.9", "console-consumer", *words), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


def described(kctl: Kctl, group: str) -> list[dict[str, str]]:
    ran = kctl("groups", "describe", group, "-o", "json")
    items = json.loads(ran.out)["items"]
    return items[0]["offsets"] if items else []


def test_members_of_both_clients_as_kafkas_tool_shows_them(on_three: Kctl, three: Three) -> None:
    fill(three.bootstrap, on_three, "both-clients", 4, 400)
    reader = Reader(three.bootstrap, "both", "librdkafka", "both-clients", **{"partition.assignment.strategy": "range"})
    try:
        with console_consumer(three, "both", "both-clients"):

            def settled() -> bool:
                committed: dict[str, set[bool]] = {}
                for row in described(on_three, "both"):
                    committed.setdefault(row["member"], set()).add(row["committed"] is not None)
                return committed == {"librdkafka": {False}, "console-consumer": {True}}

            until(settled, "both have partitions, and Java's consumer has committed its own", SECONDS)
            rows = described(on_three, "both")
            theirs = [line.split() for line in consumer_groups(three, "--describe", "--group", "both")[1:]]
            ours = [
                [
                    "both",
                    "both-clients",
                    *(str(row[name]) for name in ("partition", "committed", "end", "lag")),
                    row["member_id"],
                    f"/{row['host']}",
                ]
                for row in rows
            ]
            for row in ours:
                if row[3] == "None":  # where Kafka's tool has no number, there are all records
                    assert row[5] == "100"
                    row[3] = row[5] = "-"
            assert sorted(ours) == sorted(line[:8] for line in theirs)
            assert {
                row["topics"][0] for row in json.loads(on_three("groups", "members", "both", "-o", "json").out)["items"]
            } == {"both-clients"}
            assert all(row["commit_age_ms"] is not None for row in rows if row["committed"] is not None)
    finally:
        reader.close()


VARIANTS = [
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset 30",
    "--to-offset 100000",
    "--shift-by -20",
    "--shift-by 100000",
    "--to-datetime 2001-01-01T00:00:00.000",
    "--to-datetime 2101-01-01T00:00:00.000Z",
    "--by-duration PT1H",
    "--by-duration P0DT0H0M0S",
]


def test_resets_as_kafkas_tool_plans_them(on_three: Kctl, three: Three, tmp_path: Path) -> None:
    fill(three.bootstrap, on_three, "resets", 3, 150)
    here = ("--undo-dir", str(tmp_path))
    (tmp_path / "begin.csv").write_text("resets,0,40\nresets,1,10\n")
    begin = ("--from-file", str(tmp_path / "begin.csv"))
    assert on_three("groups", "reset-offsets", "resetting", *begin, "-y", *here).code == Exit.DONE
    assert offsets_of(
        consumer_groups(three, "--reset-offsets", "--group", "resetting", "--all-topics", "--to-current", "--export")
    ) == [
        "resets,0,40",
        "resets,1,10",
    ]
    for variant in VARIANTS:
        for scope in ("--all-topics",) if "shift" in variant else ("--all-topics", "--topic resets:2,0"):
            words = ["--group", "resetting", *scope.split(), *variant.split(), "--export"]
            ours = on_three("groups", "reset-offsets", *words)
            theirs = offsets_of(consumer_groups(three, "--reset-offsets", *words))
            assert theirs, variant
            assert sorted(ours.out.splitlines()) == theirs, (variant, scope)


def test_files_go_both_ways(on_three: Kctl, three: Three, tmp_path: Path) -> None:
    fill(three.bootstrap, on_three, "filed", 2, 40)
    many = ("--group", "filed-1", "--group", "filed-2")
    here = ("--undo-dir", str(tmp_path))
    theirs = consumer_groups(three, "--reset-offsets", *many, "--topic", "filed", "--to-offset", "7", "--export")
    file = tmp_path / "theirs.csv"
    file.write_text("\n".join(offsets_of(theirs)) + "\n")
    assert on_three("groups", "reset-offsets", *many, "--from-file", file, "--execute", *here).code == Exit.DONE
    assert (
        on_three("groups", "reset-offsets", "filed-1", "--topic", "filed:1", "--to", "9", "-y", *here).code == Exit.DONE
    )
    ours = on_three("groups", "export", "filed-1", "filed-2").out
    assert ours == "filed-1,filed,0,7\nfiled-1,filed,1,9\nfiled-2,filed,0,7\nfiled-2,filed,1,7\n"
    file.write_text(ours)
    again = consumer_groups(three, "--reset-offsets", *many, "--from-file", str(file), "--export")
    assert offsets_of(again) == ours.splitlines()
    one = on_three("groups", "export", "filed-2").out
    file.write_text(one)
    consumer_groups(three, "--reset-offsets", "--group", "filed-3", "--from-file", str(file), "--execute")
    assert on_three("groups", "export", "filed-3").out == one
    assert on_three("groups", "delete", "filed-1", "filed-2", "filed-3", "-y", *here).code == Exit.DONE
    assert not {"filed-1", "filed-2", "filed-3"} & set(consumer_groups(three, "--list"))


def test_an_active_group_is_not_reset(on_three: Kctl, three: Three, tmp_path: Path) -> None:
    fill(three.bootstrap, on_three, "actively-read", 1, 5)
    reader = Reader(three.bootstrap, "active-group", "reads", "actively-read")
    try:
        until(lambda: reader.assigned, "the consumer has its partition", SECONDS)
        ran = on_three("groups", "reset-offsets", "active-group", "--topic", "actively-read", "--to", "0", "-y")
        assert (ran.code, "stop: reads@127.0.0.1" in ran.err) == (Exit.REFUSED, True)
    finally:
        reader.close()
    back = ("--to", "0", "-y", "--wait", "--undo-dir", str(tmp_path))
    assert on_three("groups", "reset-offsets", "active-group", "--topic", "actively-read", *back).code == Exit.DONE


def test_the_member_that_is_stuck_is_found_and_removed(on_three: Kctl, three: Three) -> None:
    fill(three.bootstrap, on_three, "held-up", 3, 30)
    readers = [Reader(three.bootstrap, "held-up", name, "held-up", **QUICK) for name in ("works", "hangs")]

    def told() -> dict[str, str]:
        rows = json.loads(on_three("groups", "rebalance", "held-up", "-o", "json").out)["items"]
        return {row["member"]: row["status"] for row in rows}

    def has(state: str, members: int) -> Callable[[], bool]:
        def check() -> bool:
            groups = json.loads(on_three("groups", "list", "held-up", "-o", "json").out)["items"]
            return [(group["state"], group["members"]) for group in groups] == [(state, members)]

        return check

    try:
        until(has("Stable", 2), "both have partitions", SECONDS)
        readers[1].stuck = True
        readers.append(Reader(three.bootstrap, "held-up", "comes", "held-up", **QUICK))
        until(has("PreparingRebalance", 3), "the third is there", SECONDS)
        until(lambda: told() == {"works": "suspect", "hangs": "suspect", "comes": "waiting"}, "it is told", SECONDS)
        ran = on_three("groups", "rebalance", "held-up", "--suspects", "-y", "-o", "json", "--timeout", "15s")
        assert ran.code == Exit.DONE, ran
        fates = {row["member"]: row["fate"] for row in json.loads(ran.out)["items"]}
        assert fates["hangs"] == "did not return"
        assert fates["works"] in ("stayed", "returned")
        assert fates["comes"] == "stayed"
        assert "did not return: hangs" in ran.err
        readers[1].stuck = False
        until(has("Stable", 3), "it comes back once it polls again", SECONDS)
        before = {
            row["member_id"] for row in json.loads(on_three("groups", "members", "held-up", "-o", "json").out)["items"]
        }
        ran = on_three("groups", "rebalance", "held-up", "--all", "-y", "-o", "json", "--timeout", "30s")
        assert ran.code == Exit.DONE, ran
        rows = json.loads(ran.out)["items"]
        assert [row["fate"] for row in rows] == ["returned"] * 3
        assert before.isdisjoint(row["member_id"] for row in rows)
    finally:
        for reader in readers:
            reader.close()
