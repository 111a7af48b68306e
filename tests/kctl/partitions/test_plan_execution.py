"""A plan that is carried out batch by batch, on a cluster in which each move takes one look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.partitions import apply, plan_execution, plan_throttle
from kctl.partitions.cluster_model import Broker, Partition
from kctl.partitions.plan_execution import PlanExecution
from kctl.partitions.plan_lock import held
from kctl.partitions.plan_throttle import PlanThrottle, StateFile
from kctl.partitions.reassignment_json import Place, Plan
from kctl.partitions.requests import Active
from kctl.partitions.snapshot import Snapshot
from kctl.partitions.throttle_settings import BROKER, RATES, Setting, Throttle
from kctl.reach.session import Cluster
from kctl.settings import Settings
from tests.kctl.conftest import session_of


class FakeCluster:
    def __init__(self, partitions: int) -> None:
        self.partitions = {each.name: each for each in (Partition("t", n, (1,), 1, 10) for n in range(partitions))}
        self.active: dict[TopicPartition, Active] = {}
        self.looked_at: list[int] = []

    def begin(self, session: object, moves: Mapping[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, Any]:
        self.active |= {where: Active((*replicas, 1), replicas, (1,)) for where, replicas in moves.items()}
        return {}

    def take(self, session: object, asked: Mapping[str, Iterable[int]]) -> Snapshot:
        names = [TopicPartition(topic, number) for topic, numbers in asked.items() for number in numbers]
        self.looked_at.append(len(names))
        active = {where: self.active.pop(where) for where in names if where in self.active}
        seen = [
            self.partitions[where]._replace(replicas=active[where].target)
            if where in active
            else self.partitions[where]
            for where in sorted(names)
        ]
        self.partitions |= {each.name: each._replace(leader=each.replicas[0]) for each in seen}
        return Snapshot([Broker(1), Broker(2)], seen, active, [], [])


def test_while_a_batch_moves_nothing_else_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(10)
    monkeypatch.setattr(plan_execution, "take", cluster.take)
    monkeypatch.setattr(plan_execution, "begin_moves", cluster.begin)
    monkeypatch.setattr(plan_execution, "choose_directories", lambda session, paths: {})
    places = dict.fromkeys(cluster.partitions, Place((2,)))
    throttle: Any = SimpleNamespace(catch_up=lambda: None, rate=None)
    session: Any = SimpleNamespace(settings=Settings())
    seconds = iter(range(0, 10_000, 10))  # so that each look is told
    execution = PlanExecution(session, places, throttle, lambda: next(seconds), lambda seconds: None)
    assert execution.run(4, pause_if_urp=False) == []
    assert {each.replicas for each in cluster.partitions.values()} == {(2,)}
    assert cluster.looked_at == [10, 4, 4, 4, 4, 2, 2]
    told = [line.split("  ")[:3] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        ["batch 1/3", "4 moving, 0 done", "0 B of 100 B"],
        ["batch 2/3", "4 moving, 4 done", "40 B of 100 B"],
        ["batch 3/3", "2 moving, 8 done", "80 B of 100 B"],
    ]


def test_the_throttle_stays_on_moves_that_cannot_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def unanswered(*_: object) -> None:
        raise KctlError("the controller does not answer", exit_code=Exit.UNREACHABLE)

    path = str(tmp_path / "plan.json")
    state = StateFile(path)
    state.write(Throttle("here", 1_000_000, {}, {}))
    session: Any = SimpleNamespace(settings=Settings(), cluster=Cluster("here", 1, {}))
    throttle = PlanThrottle(session, state, None)
    monkeypatch.setattr(throttle, "take_off", lambda: pytest.fail("the throttle is taken off"))
    monkeypatch.setattr(apply, "active_moves", unanswered)
    apply.leave_in_order(session, path, Plan({TopicPartition("t", 0): Place((2,))}), throttle)
    assert state.read() is not None
    told = capsys.readouterr().err
    assert "what moves goes on moving, and the throttle of 1.0 MB/s stays" in told
    assert f"resume:   kctl partitions apply {path}\n" in told
    assert f"clean up: kctl partitions cancel {path}\n" in told


def test_a_throttle_that_others_have_changed_is_not_forgotten_for_a_broker_that_is_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    down, changed = Setting(BROKER, "1", RATES[0]), Setting(BROKER, "2", RATES[0])
    there = {changed: "7"}
    moves = [TopicPartition("t", 0)]
    state = StateFile(str(tmp_path / "plan.json"))
    before: dict[Setting, str | None] = {down: None, changed: None}
    state.write(Throttle("here", 1_000_000, {down: "5", changed: "5"}, before))
    session: Any = SimpleNamespace(settings=Settings(), cluster=Cluster("here", 1, {}))
    unanswered = KctlError("broker 1 does not answer", exit_code=Exit.UNREACHABLE)

    def read(session: object, settings: Iterable[Setting]) -> tuple[dict[Setting, str | None], list[KctlError]]:
        return {each: there.get(each) for each in settings if each != down}, [unanswered]

    def write(session: object, values: Mapping[Setting, str | None]) -> list[KctlError]:
        for setting in values:
            there.pop(setting, None)  # what was there before is nothing
        return []

    monkeypatch.setattr(plan_throttle, "read_settings", read)
    monkeypatch.setattr(plan_throttle, "write_settings", write)
    monkeypatch.setattr(plan_throttle, "active_moves", lambda session: moves)
    errors = PlanThrottle(session, state, None).take_off()
    assert [error.what for error in errors] == [
        f"a throttle was not removed: somebody else changed it meanwhile, and moves are under way: {changed}",
        "the throttle of broker 1 is still on: it does not answer, and nobody else can change it",
    ]
    moves.clear()
    PlanThrottle(session, state, None).take_off()
    assert not there, "the next run does it"


def test_plans_that_are_saved_in_the_same_second_have_files_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = FakeCluster(4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_execution, "take", cluster.take)
    monkeypatch.setattr(plan_execution, "begin_moves", cluster.begin)
    monkeypatch.setattr(plan_execution, "choose_directories", lambda session, paths: {})
    session = session_of(1, 2)
    session.settings.yes = True
    options = apply.Options(wait=False, additional=True)

    def reassigned(number: int) -> str:
        """Its file."""
        plan = Plan({TopicPartition("t", number): Place((2,))})
        assert apply.carry_out(session, "reassign-now.json", plan, options, save=True) == Exit.DONE
        told = capsys.readouterr().err
        path = next(line.removeprefix("wrote ") for line in told.splitlines() if line.startswith("wrote reassign"))
        assert apply.read_plan(path).places == plan.places
        assert list(apply.read_plan(f"rollback-{path}").places) == list(plan.places)
        assert f"finish: kctl partitions apply {path}\n" in told
        return path

    assert [reassigned(0), reassigned(1)] == ["reassign-now.json", "reassign-now_2.json"]
    StateFile("reassign-now_3.json").write(Throttle("another", 1, {}, {}))
    assert reassigned(2) == "reassign-now_4.json"
    assert list(apply.read_plan("reassign-now.json").places) == [TopicPartition("t", 0)]


def test_a_saved_plan_is_no_other_kctls_while_it_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def begin(session: object, moves: Mapping[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, Any]:
        with pytest.raises(KctlError, match="is at work on reassign-now"), held("reassign-now.json"):
            pass
        return cluster.begin(session, moves)

    cluster = FakeCluster(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_execution, "take", cluster.take)
    monkeypatch.setattr(plan_execution, "begin_moves", begin)
    monkeypatch.setattr(plan_execution, "choose_directories", lambda session, paths: {})
    session = session_of(1, 2)
    session.settings.yes = True
    plan = Plan({TopicPartition("t", 0): Place((2,))})
    options = apply.Options(wait=False, additional=True)
    assert apply.carry_out(session, "reassign-now.json", plan, options, save=True) == Exit.DONE
    with held("reassign-now.json"):
        pass


def test_a_saved_plan_leaves_alone_the_state_of_another_of_its_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = FakeCluster(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_execution, "take", cluster.take)
    session = session_of(1, 2)
    StateFile("reassign-now.json").write(Throttle("c", 1_000_000, {}, {}))
    plan = Plan({TopicPartition("t", 0): Place((1,))})
    options = apply.Options(additional=True)
    assert apply.carry_out(session, "reassign-now.json", plan, options, save=True) == Exit.DONE
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("reassign")] == ["reassign-now.json.state"]
