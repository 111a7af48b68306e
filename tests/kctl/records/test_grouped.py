from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.errors import Exit, KctlError
from kctl.records.assignors import ASSIGNORS
from kctl.records.membership import Member
from kctl.records.subscriptions import read_assignment, read_subscription, write_assignment, write_subscription
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import commit
from tests.kctl.records.conftest import WAIT, Feed, NewTopic, until

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 4


def numbers(first: int, last: int) -> str:
    return "".join(f"{number}\n" for number in range(first, last))


@pytest.fixture
def name(on_broker: Kctl, topic: NewTopic, feed: Feed) -> str:
    """A topic with the numbers from 0 to 39, ten in each partition."""
    made = topic(PARTITIONS)
    feed(numbers(0, 40))
    assert on_broker("produce", made, "--partitioner", "round-robin").code == 0
    return made


def test_group_goes_on_where_it_was(on_broker: Kctl, name: str, feed: Feed, new_name: Callable[[], str]) -> None:
    group = new_name()
    ran = on_broker("consume", name, "--group", group)
    assert (ran.code, sorted(map(int, ran.out.split()))) == (0, list(range(40)))
    assert on_broker("consume", name, "--group", group, "--fail-empty").code == 3
    feed(numbers(40, 44))
    on_broker("produce", name, "--partitioner", "round-robin")
    assert sorted(on_broker("consume", name, "--group", group).out.split()) == ["40", "41", "42", "43"]
    assert on_broker("consume", name, "--group", new_name(), "--from", "latest").out == ""


def test_only_what_was_printed_is_committed(on_broker: Kctl, name: str, new_name: Callable[[], str]) -> None:
    group = new_name()
    got = [on_broker("consume", name, "--group", group, "-n", "7").out.split() for _ in range(6)]
    assert [len(some) for some in got] == [7, 7, 7, 7, 7, 5]
    assert sorted(int(number) for some in got for number in some) == list(range(40))


def test_a_group_does_not_go_past_a_damaged_batch(
    on_broker: Kctl, damaged: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    group = new_name()
    for printed in (["value-0", "value-1"], []):
        ran = on_broker("consume", damaged, "--group", group)
        assert (ran.code, ran.out.split()) == (Exit.FAILED, printed)
        assert "has a damaged batch at offset 2" in ran.err
        described = json.loads(on_broker("groups", "describe", group, "-o", "json").out)
        assert [offset["committed"] for offset in described["items"][0]["offsets"]] == [2]
    [told] = [line for line in ran.err.splitlines() if line.endswith(" moves the group past it")]
    words = shlex.split(told.removesuffix(" moves the group past it"))[1:]
    moved = on_broker("-y", *words, "--undo-dir", str(tmp_path))
    assert moved.code == Exit.DONE, moved
    went_on = on_broker("consume", damaged, "--group", group)
    assert (went_on.code, went_on.out.split()) == (Exit.DONE, [f"value-{number}" for number in range(3, 8)])


def refused(monkeypatch: pytest.MonkeyPatch, code: ErrorCode, times: int) -> None:
    """So many commits from now on are answered with this code."""
    left = [code] * times
    asked = Member._ask_patiently

    def ask(self: Member, request: Any, codes: Any, **options: Any) -> Any:
        if isinstance(request, OffsetCommitRequest) and left:
            part = OffsetCommitResponsePartition(error_code=left.pop())
            return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=[part])])
        return asked(self, request, codes, **options)

    monkeypatch.setattr(Member, "_ask_patiently", ask)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "what was printed last cannot be committed"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances: its last offsets are not committed"),
        (
            ErrorCode.ILLEGAL_GENERATION,
            "the group went on without this member: its last offsets are not committed",
        ),
    ],
)
def test_what_cannot_be_committed_is_told(
    on_broker: Kctl,
    name: str,
    new_name: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    code: ErrorCode,
    told: str,
) -> None:
    refused(monkeypatch, code, 9)
    ran = on_broker("consume", name, "--group", new_name(), "-n", 3)
    assert len(ran.out.split()) == 3
    assert (ran.code in (Exit.FAILED, Exit.UNREACHABLE), told in ran.err) == (True, True), ran


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        (KeyboardInterrupt(), Exit.INTERRUPTED, "interrupted: "),
        (KctlError("no", exit_code=Exit.NOT_FOUND), Exit.NOT_FOUND, "error: no\n"),
        (BrokenPipeError(), Exit.DONE, ""),
    ],
)
@pytest.mark.parametrize(
    "refusal",
    [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_refused_commit_does_not_hide_what_ended_it(
    on_broker: Kctl,
    name: str,
    new_name: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    refusal: ErrorCode,
    end: BaseException,
    code: Exit,
    told: str,
) -> None:
    def printed(*arguments: Any) -> None:
        chunks = iter(arguments[-1])
        next(chunks), next(chunks)  # the first is printed when the second is asked for
        raise end

    monkeypatch.setattr("kctl.records.consume.print_records", printed)
    refused(monkeypatch, refusal, 9)
    ran = on_broker("consume", name, "--group", new_name())
    assert (ran.code, told in ran.err, "committed" in ran.err) == (code, True, True), ran


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_what_could_not_be_committed_in_a_rebalance_is_committed_after_it(
    on_broker: Kctl, name: str, new_name: Callable[[], str], monkeypatch: pytest.MonkeyPatch, assignor: str
) -> None:
    monkeypatch.setattr("kctl.records.grouped._COMMIT_SECONDS", 0)
    refused(monkeypatch, ErrorCode.REBALANCE_IN_PROGRESS, 2)
    group = new_name()
    ran = on_broker("consume", name, "--group", group, "--assignor", assignor)
    assert (ran.code, sorted(map(int, ran.out.split()))) == (Exit.DONE, list(range(40)))
    assert on_broker("consume", name, "--group", group, "--fail-empty").code == Exit.NOT_FOUND


def test_a_group_is_not_changed_by_a_rehearsal_nor_unasked(
    on_broker: Kctl, broker: KafkadProcess, name: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    assert on_broker("consume", name, "--group", group, "--dry-run").code == Exit.USAGE
    assert on_broker("contexts", "set", "guarded", f"bootstrap={broker.bootstrap}", "protected=true").code == 0
    assert on_broker("-c", "guarded", "consume", name, "--group", group).code == Exit.REFUSED
    assert on_broker("groups", "export", group).code == Exit.NOT_FOUND


def test_a_commit_beyond_the_end_is_told(
    on_broker: Kctl, broker: KafkadProcess, name: str, new_name: Callable[[], str]
) -> None:
    group = new_name()
    commit(broker.port, group, {TopicPartition(name, 0): 500})
    ran = on_broker("consume", name, "--group", group)
    assert f"{name}-0: the group has committed 500, beyond the end 10" in ran.err


@contextmanager
def member(broker: KafkadProcess, name: str, group: str, out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "consume", name, "--group", group, "--follow"]
    command += ["--from", "earliest", "-f", "%p %s\\n", *words]
    with out.open("a") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def seen(*files: Path) -> list[int]:
    return sorted(int(line.split()[1]) for file in files if file.exists() for line in file.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_two_members_share_and_one_takes_over(
    broker: KafkadProcess, on_broker: Kctl, topic: NewTopic, tmp_path: Path, new_name: Callable[[], str], assignor: str
) -> None:
    name, group = topic(PARTITIONS), new_name()
    one, two = tmp_path / "one", tmp_path / "two"
    sent = 0

    def send() -> None:
        nonlocal sent
        for partition in range(PARTITIONS):
            on_broker("produce", name, "--value", str(sent), "--partition", str(partition))
            sent += 1

    def partitions(file: Path, after: int) -> set[str]:
        lines = [line.split() for line in file.read_text().splitlines()]
        return {partition for partition, number in lines if int(number) >= after}

    with member(broker, name, group, one, "--assignor", assignor) as first:
        until(lambda: partitions(one, 0) == {"0", "1", "2", "3"}, send)
        with member(broker, name, group, two, "--assignor", assignor) as second:
            until(lambda: len(partitions(two, 0)) == 2, send)
            shared = sent
            until(lambda: len(partitions(one, shared)) == 2 and len(partitions(two, shared)) == 2, send)
            assert partitions(one, shared).isdisjoint(partitions(two, shared))
            second.send_signal(signal.SIGINT)
            assert second.wait(WAIT) == 130
            assert second.stderr is not None
            assert second.stderr.read().endswith(" records read\n")
        alone = sent
        until(lambda: partitions(one, alone) == {"0", "1", "2", "3"}, send)
        until(lambda: len(set(seen(one, two))) == sent)
        first.send_signal(signal.SIGINT)
        assert first.wait(WAIT) == 130
    got = seen(one, two)
    assert sorted(set(got)) == list(range(sent))
    assert on_broker("consume", name, "--group", group, "--assignor", assignor).out == ""


def test_assignor_of_ones_own(
    broker: KafkadProcess, on_broker: Kctl, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kctl_my_assignor.py").write_text(
        "def mine(subscriptions, partitions):\n"
        "    (member,) = subscriptions\n"
        "    return {member: [(topic, 1) for topic in partitions]}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("--group", f"{name}-group", "--assignor", "kctl_my_assignor:mine")
    ran = on_broker("consume", name, *words, "-f", "%p ")
    assert ran.out.split() == ["1"] * 10


def test_static_member_keeps_its_place(on_broker: Kctl, name: str, new_name: Callable[[], str]) -> None:
    group = new_name()
    assert len(on_broker("consume", name, "--group", group, "--instance", "a", "-n", "5").out.split()) == 5
    assert len(on_broker("consume", name, "--group", group, "--instance", "a").out.split()) == 35


def test_member_that_is_put_out_comes_back(
    broker: KafkadProcess, on_broker: Kctl, topic: NewTopic, tmp_path: Path, new_name: Callable[[], str]
) -> None:
    """As `LeaveGroup` by somebody else, or a session that timed out, does."""
    name, group, out = topic(1), new_name(), tmp_path / "out"
    with member(broker, name, group, out) as process:
        until(lambda: seen(out) != [], lambda: on_broker("produce", name, "--value", "1"))
        put_out(broker, group)
        until(lambda: bool(members(broker, group)))
        on_broker("produce", name, "--value", "2")
        until(lambda: 2 in seen(out))
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 130
        assert process.stderr is not None
        assert "the group went on without this member" in process.stderr.read()


def members(broker: KafkadProcess, group: str) -> list[str]:
    from tests.clients.probes import Asker

    asker = Asker(broker.port)
    answer = asker.ask("DescribeGroups", 5, {"groups": [group]})
    asker.client.close()
    return [one.member_id for one in answer.groups[0].members]


def put_out(broker: KafkadProcess, group: str) -> None:
    from tests.clients.probes import Asker

    asker = Asker(broker.port)
    out = [{"member_id": member, "group_instance_id": None, "reason": None} for member in members(broker, group)]
    asker.ask("LeaveGroup", 5, {"group_id": group, "members": out})
    asker.client.close()


OWNED = [("t", 0), ("u", 3), ("t", 1)]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_subscriptions_there_and_back(assignor: str) -> None:
    said = read_subscription(assignor, write_subscription(assignor, ["t", "u"], OWNED, 7), "i")
    assert (said.topics, sorted(said.owned), said.generation, said.instance_id) == (("t", "u"), sorted(OWNED), 7, "i")


def test_assignments_there_and_back() -> None:
    assert sorted(read_assignment(write_assignment(OWNED))) == sorted(OWNED)
    assert read_assignment(b"") == []


def test_subscription_of_an_old_client() -> None:
    data = bytes.fromhex("0000 00000001 0001 74 ffffffff")
    assert read_subscription("range", data, None).topics == ("t",)
