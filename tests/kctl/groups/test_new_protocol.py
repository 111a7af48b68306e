"""`kctl groups` on Kafka 4.3: groups of the protocol of KIP-848, beside classic ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, until
from tests.kctl.groups.readers import SECONDS, Reader, fill
from tests.oracle.kafka import Kafka, missing

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    if why := missing("4.3"):
        pytest.skip(why)
    with Kafka("4.3", heap="384m") as broker:
        yield broker


def test_members_epochs_and_removal(kctl: Kctl, kafka: Kafka, tmp_path: Path) -> None:
    def groups(*words: object) -> list[dict[str, object]]:
        items: list[dict[str, object]] = json.loads(kctl("-b", kafka.bootstrap, "groups", *words, "-o", "json").out)[
            "items"
        ]
        return items

    fill(kafka.bootstrap, lambda *words: kctl("-b", kafka.bootstrap, *words), "new", 4, 40, replication=1)
    readers = [Reader(kafka.bootstrap, "new", name, "new", **{"group.protocol": "consumer"}) for name in ("n1", "n2")]
    readers.append(Reader(kafka.bootstrap, "old", "o1", "new"))
    try:

        def stable() -> bool:
            members = groups("members", "new", "old")
            return sorted((row["member"], row["partitions"]) for row in members) == [("n1", 2), ("n2", 2), ("o1", 4)]

        until(stable, "all have their partitions", SECONDS)
        listed = {row["group"]: (row["type"], row["state"], row["members"], row["lag"]) for row in groups("list")}
        assert listed == {"new": ("consumer", "Stable", 2, 40), "old": ("classic", "Stable", 1, 40)}
        assert [row["group"] for row in groups("list", "--type", "consumer")] == ["new"]
        (described,) = groups("describe", "new")
        assert described["generation"] == groups("members", "new")[0]["epoch"]
        told = {row["member"]: row["status"] for row in groups("rebalance", "new")}
        assert told == {"n1": "ready", "n2": "ready"}
        refused = kctl("-b", kafka.bootstrap, "groups", "reset-offsets", "new", "--topic", "new", "--to", "3", "-y")
        assert (refused.code, "n1@127.0.0.1" in refused.err) == (Exit.REFUSED, True)
        before = {row["member"]: row for row in groups("members", "new", "old")}
        for group in ("new", "old"):
            fates = groups("rebalance", group, "--all", "-y", "--timeout", "60s")
            assert {row["fate"] for row in fates} == {"returned"}
        until(stable, "all have their partitions again", SECONDS)
        after = {row["member"]: row for row in groups("members", "new", "old")}
        assert after["o1"]["member_id"] != before["o1"]["member_id"]
        for name in ("n1", "n2"):  # who comes back to a group of this protocol keeps its id
            assert after[name]["member_id"] == before[name]["member_id"]
            assert int(str(after[name]["epoch"])) > int(str(before[name]["epoch"]))
    finally:
        for reader in readers:
            reader.close()
    words = ("reset-offsets", "new", "--topic", "new", "--to", "3", "-y", "--wait", "--undo-dir", tmp_path)
    assert kctl("-b", kafka.bootstrap, "groups", *words).code == Exit.DONE
    assert [row["lag"] for row in groups("lag", "new", "--by", "partition")] == [7, 7, 7, 7]
    assert kctl("-b", kafka.bootstrap, "groups", "describe", "neww").code == Exit.NOT_FOUND
    assert kctl("-b", kafka.bootstrap, "groups", "delete", "new", "-y", "--undo-dir", tmp_path).code == Exit.DONE
    assert [row["group"] for row in groups("list")] == ["old"]
