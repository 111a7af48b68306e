from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kafkad_etl.cluster import presence, topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.presence import Absences, Presence
from kafkad_etl.cluster.topics import Absence
from kctl.reach.session import Session
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, until
from tests.spark.jobs import job


def test_a_topic_is_gone_when_every_look_for_a_while_says_so() -> None:
    absences = Absences(10)
    assert absences.after({"a", "b"}, 0) == []
    assert absences.after({"a"}, 9) == []
    assert absences.after({"a", "b"}, 10) == ["a"]
    assert absences.after(set(), 11) == []
    assert absences.after({"a", "b"}, 20) == []
    assert absences.after({"a", "b"}, 30) == ["a", "b"]


class Seen:
    def __init__(self, session: Session, *names: str) -> None:
        ids = {name: topic.id for name, topic in topics.find(session, names).items() if topic}
        self.gone: list[Mapping[str, Absence]] = []
        self.presence = Presence(session, ids, self.gone.append)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkadProcess]:
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(presence, "GONE_SECONDS", 0.3)
    with KafkadProcess(tmp_path / "kafkad", {"auto.create.topics.enable": "false"}) as process:
        yield process


@pytest.fixture
def seen(cluster: KafkadProcess, kctl: Kctl) -> Iterator[Seen]:
    for name in ("orders", "refunds"):
        assert kctl("-b", cluster.bootstrap, "topics", "create", name, "-y").code == 0
    seen = Seen(Clusters(Settings(), Path()).fresh(job(cluster.bootstrap).kafka), "orders", "refunds")
    yield seen
    seen.presence.close()


def test_a_deleted_topic_is_told_once_and_one_that_was_made_again_too(
    cluster: KafkadProcess, kctl: Kctl, seen: Seen, tmp_path: Path
) -> None:
    delete = ("topics", "delete", "orders", "-y", "--undo-dir", tmp_path)
    assert kctl("-b", cluster.bootstrap, *delete).code == 0
    assert kctl("-b", cluster.bootstrap, "topics", "create", "orders", "-y").code == 0
    until(lambda: seen.gone == [{"orders": "deleted"}], "orders is told")


def test_a_broker_that_is_away_or_starts_says_nothing(cluster: KafkadProcess, seen: Seen) -> None:
    for _ in range(3):
        cluster.kill()
        time.sleep(0.4)
        cluster.start()
    time.sleep(0.5)
    assert seen.gone == []
