"""Added partitions and newly matching topics are followed from their beginning: alone, in a group, as its leader."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kctl.command.choosing import Choice
from kctl.errors import Exit, KctlError
from kctl.records.assignors import assign_range, assignor
from kctl.records.bounds import FOR_EVER, LAST, Span
from kctl.records.following import LOOK_SECONDS, Additions, Growth, Unreached
from kctl.records.membership import Member
from kctl.records.offset_ranges import Range
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.records.conftest import WAIT, NewTopic, until

FOLLOWED = Range(LAST, LAST, follow=True, committed=False)


class Cluster:
    """Stands for a session: topics and how many partitions they have."""

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.now = 0.0
        self.asked = 0
        self.down = False

    def metadata(self, names: Any = None) -> Any:
        self.asked += 1
        if self.down:
            raise KctlError("nobody answers")
        found = self.topics if names is None else {name: self.topics[name] for name in names if name in self.topics}
        return [self.topic(name) for name in found]

    def topic(self, name: str) -> Any:
        parts = [SimpleNamespace(partition_index=index) for index in range(self.topics[name])]
        return SimpleNamespace(name=name, partitions=parts, error_code=0, is_internal=False)

    def growth(self, *names: str, match: tuple[str, ...] = ()) -> Growth:
        return Growth(
            self,  # type: ignore[arg-type]
            Choice("topic", names, match, ()),
            {name: self.topic(name) for name in self.topics},
            lambda: self.now,
        )


def test_growth_is_noticed_at_the_next_look() -> None:
    cluster = Cluster(a=1)
    growth = cluster.growth("a")
    cluster.topics["a"] = 2
    assert not growth.look()
    assert cluster.asked == 0
    cluster.now += LOOK_SECONDS
    assert growth.look()
    assert growth.counts == {"a": 2}
    assert [growth.is_new(TopicPartition("a", index)) for index in (0, 1)] == [False, True]
    cluster.now += LOOK_SECONDS
    assert not growth.look()


def test_topics_that_match_are_noticed_and_those_that_are_gone_or_unreachable_stay() -> None:
    cluster = Cluster(web_a=1)
    growth = cluster.growth(match=("web_*",))
    cluster.topics |= {"web_b": 3, "other": 1}
    cluster.now += LOOK_SECONDS
    assert growth.look()
    assert growth.counts == {"web_a": 1, "web_b": 3}
    del cluster.topics["web_a"]
    cluster.now += LOOK_SECONDS
    assert not growth.look()
    cluster.down = True
    cluster.now += LOOK_SECONDS
    assert not growth.look()
    assert growth.counts == {"web_a": 1, "web_b": 3}


def test_partitions_that_cannot_be_read_at_first_are_followed_once_they_can() -> None:
    now = 0.0
    a, b, c = (TopicPartition("t", number) for number in range(3))
    away = KctlError("no leader", exit_code=Exit.UNREACHABLE)
    failed = {b: away, c: KctlError("not allowed", exit_code=Exit.UNAUTHORIZED)}
    back: dict[TopicPartition, Span] = {}
    told: list[str] = []
    unreached = Unreached(lambda left: (dict(back), {}), failed, told.append, lambda: now)
    unreached.look_for([a, b, c])
    assert told == ["t-1 cannot be read, and is tried again: no leader"]
    now += LOOK_SECONDS
    assert (unreached(), list(failed)) == ({}, [b, c])
    back[b] = Span(3, FOR_EVER)
    assert unreached() == {}, "not so often"
    now += LOOK_SECONDS
    assert (unreached(), list(failed)) == (back, [c])
    assert told[1:] == ["t-1 is read now"]
    now += LOOK_SECONDS
    assert unreached() == {}


def test_topics_of_others_matter_to_the_leader_of_a_group() -> None:
    cluster = Cluster(a=1)
    growth = cluster.growth("a")
    cluster.topics["theirs"] = 2
    cluster.now += LOOK_SECONDS
    assert not growth.look({"theirs": 2})
    cluster.topics["theirs"] = 3
    cluster.now += LOOK_SECONDS
    assert growth.look({"theirs": 2})
    assert growth.counts == {"a": 1}


def test_additions_are_read_from_their_beginning_and_once() -> None:
    cluster = Cluster(a=1)
    growth = cluster.growth(match=("*",))
    added = Additions(cluster, growth, FOLLOWED, [TopicPartition("a", 0)])  # type: ignore[arg-type]
    assert added() == {}
    cluster.topics |= {"a": 2, "b": 1}
    cluster.now += LOOK_SECONDS
    assert added() == dict.fromkeys((TopicPartition("a", 1), TopicPartition("b", 0)), Span(0, FOR_EVER))
    cluster.now += LOOK_SECONDS
    assert added() == {}


@pytest.mark.parametrize(
    ("leads", "topics", "joins"),
    [
        (False, {"a": 2}, False),
        (True, {"a": 2}, True),
        (False, {"a": 1, "b": 1}, True),
    ],
)
def test_leader_sees_to_partitions_and_everybody_to_topics(leads: bool, topics: dict[str, int], joins: bool) -> None:
    chosen = assignor("range")
    assert chosen is not None and chosen.assign is assign_range
    member = Member(Cluster(a=1), "g", {"a": 1}, chosen)  # type: ignore[arg-type]
    member.must_join, member._leads = False, leads
    member.follow(topics)
    assert member.must_join is joins


# --- with the real program


@contextmanager
def following(broker: KafkadProcess, out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "consume", "--follow", "-f", "%t-%p %s\\n", *words]
    with out.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT) == 130
        finally:
            process.kill()


def lines(*files: Path) -> list[str]:
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("members", [0, 1, 2])
def test_new_partitions_and_topics_are_followed(
    broker: KafkadProcess,
    on_broker: Kctl,
    topic: NewTopic,
    tmp_path: Path,
    new_name: Callable[[], str],
    members: int,
) -> None:
    """Alone, as the only member of a group, and as one of two of whom one leads."""
    name = topic(2)
    out = [tmp_path / f"{number}" for number in range(max(members, 1))]
    words = ["--match", f"{name}*", *(("--group", new_name()) if members else ())]
    sent = 0

    def send() -> None:
        nonlocal sent
        for partition in range(2):
            assert on_broker("produce", name, "--partition", partition, "--value", sent).code == 0
            sent += 1

    def is_read(text: str) -> bool:
        return text in lines(*out)

    with following(broker, out[0], *words):
        until(lambda: bool(lines(out[0])), send)
        with following(broker, out[1], *words) if members > 1 else nullcontext():
            until(lambda: all(lines(file) for file in out), send)
            assert on_broker("topics", "add-partitions", name, "-p", "4", "-y").code == 0
            assert on_broker("topics", "create", f"{name}-too", "-y").code == 0
            expected = [f"{name}-2 early", f"{name}-3 early", f"{name}-too-0 early"]
            for text in expected:
                where = text.split()[0]
                topic_name, _, partition = where.rpartition("-")
                assert on_broker("produce", topic_name, "--partition", partition, "--value", "early").code == 0
            until(lambda: all(map(is_read, expected)))
    got = lines(*out)
    assert [got.count(text) for text in expected] == [1, 1, 1]
