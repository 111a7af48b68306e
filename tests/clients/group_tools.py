"""The part of the session at the command line that is about consumer groups; see tools.py."""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.clients.asker import Asker
from tests.clients.members import assignment, group_of
from tests.clients.tools import Outcome, Run, Step

SESSION_MS = 1_200_000
"""Of the member that does not send heartbeats while the tools look at its group."""

CONSUMERS = [
    Step("consume in a group", "console-consumer", "--topic g1 --group c1 --from-beginning --max-messages 4 --timeout-ms 30000 "
         "--property print.offset=true --property print.key=true"),
    Step("consume on in a group", "console-consumer", "--topic g1 --group c1 --from-beginning --max-messages 2 --timeout-ms 30000 "
         "--property print.offset=true --property print.key=true"),
    Step("consume topics by pattern in a group", "console-consumer", "--include g[2] --group c2 --from-beginning --max-messages 6 --timeout-ms 30000"),
    Step("verifiable consumer", "verifiable-consumer", "--topic g1 --group-id v1 --max-messages 6 --reset-policy earliest"),
    Step("consumer perf", "consumer-perf", "--topic g1 --group p1 --messages 6 --timeout 30000 --hide-header"),
]  # fmt: skip


def _step(name: str, words: str) -> Step:
    return Step(name, "consumer-groups", words)


def _reset(name: str, words: str) -> Step:
    return _step(f"reset offsets {name}", f"--reset-offsets --group c1 {words}")


AT_REST = [
    _step("list groups", "--list"),
    _step("list groups with states", "--list --state"),
    _step("list groups in a state", "--list --state empty"),
    _step("list groups in one of two states", "--list --state Empty,Stable"),
    _step("list groups with types", "--list --type"),
    _step("list groups with types and states", "--list --type --state"),
    _step("list groups of a type", "--list --type classic"),
    _step("list groups of a type that none is of", "--list --type consumer"),
    _step("list groups of a type in a state", "--list --type classic --state empty"),
    _step("describe a group", "--describe --group c1"),
    _step("describe the members of an empty group", "--describe --group c1 --members"),
    _step("describe the state of an empty group", "--describe --group c1 --state"),
    _step("describe the offsets of a group and their epochs", "--describe --group c1 --offsets --verbose"),
    _step("describe the state of a group and its epochs", "--describe --group c1 --state --verbose"),
    _step("describe two groups", "--describe --group c1 --group c2 --offsets"),
    _step("describe a group that is not there", "--describe --group nowhere"),
    _step("describe the members of a group that is not there", "--describe --group nowhere --members"),
    _step("describe the state of a group that is not there", "--describe --group nowhere --state"),
    _step("describe all groups", "--describe --all-groups"),
    _step("describe the members of all groups", "--describe --all-groups --members"),
    _step("describe the states of all groups", "--describe --all-groups --state"),
    _reset("to the earliest, only planned", "--topic g1 --to-earliest"),
    _reset("to the earliest", "--topic g1 --to-earliest --execute"),
    _reset("to the latest of a partition", "--topic g1:0 --to-latest --execute"),
    _reset("of partitions of two topics", "--topic g1:0 --topic g2:0 --to-latest --execute"),
    _reset("to an offset", "--topic g1 --to-offset 3 --execute"),
    _reset("to an offset beyond the end", "--topic g1 --to-offset 99 --execute"),
    _reset("back by two", "--topic g1 --shift-by -2 --execute"),
    _reset("back by too many", "--topic g1 --shift-by -100 --dry-run"),
    _reset("forward by too many", "--topic g1 --shift-by 100 --execute"),
    _reset("to a time", "--topic g1 --to-datetime 2023-11-14T22:13:20.500Z --execute"),
    _reset("to a time in a zone", "--topic g1 --to-datetime 2001-01-01T00:00:00.000+02:00 --execute"),
    _reset("to a time that is yet to come", "--topic g1 --to-datetime 2099-01-01T00:00:00.000 --execute"),
    _reset("to a time that is none", "--topic g1 --to-datetime yesterday --execute"),
    _reset("to what is there", "--all-topics --to-current --execute"),
    _reset("by a duration, before all", "--topic g1 --by-duration P20000D --execute"),
    _reset("by a duration, after all", "--topic g1 --topic g2 --by-duration PT1S --execute"),
    _reset("to a file", "--all-topics --to-offset 2 --export --dry-run"),
    _reset("of two groups to a file", "--group c2 --all-topics --to-offset 2 --export --dry-run"),
    _reset("from a file, only planned", "--from-file {dir}/offsets.csv --dry-run"),
    _reset("from a file", "--from-file {dir}/offsets.csv --execute"),
    _reset("of two groups from a file", "--group c2 --from-file {dir}/groups.csv --execute"),
    _reset("of a topic that is not there", "--topic nowhere --to-earliest --execute"),
    _step("reset offsets of a group that is not there", "--reset-offsets --group n1 --topic g1 --to-offset 1 --execute"),
    _step("reset all offsets of a group that is not there", "--reset-offsets --group nowhere --all-topics --to-earliest --execute"),
    _step("reset offsets of all groups", "--reset-offsets --all-groups --all-topics --to-latest --dry-run"),
    _step("describe a group after resetting", "--describe --group c1 --offsets"),
    _step("delete offsets of a partition", "--delete-offsets --group c2 --topic g2:0"),
    _step("delete offsets of a partition that is not there", "--delete-offsets --group c1 --topic g1:7"),
    _step("delete offsets", "--delete-offsets --group c1 --topic g2"),
    _step("delete offsets of a topic that is not there", "--delete-offsets --group c1 --topic nowhere"),
    _step("delete offsets of a group that is not there", "--delete-offsets --group nowhere --topic g1"),
    _step("describe a group after deleting offsets", "--describe --group c1"),
]  # fmt: skip

IN_USE = [
    _step("list groups with members", "--list --state stable"),
    _step("list groups with members and their types", "--list --state stable --type classic"),
    _step("describe a group in use", "--describe --group m1"),
    _step("describe the members of a group", "--describe --group m1 --members"),
    _step("describe the members of a group and their partitions", "--describe --group m1 --members --verbose"),
    _step("describe the state of a group", "--describe --group m1 --state"),
    _step("describe the offsets of a group in use and their epochs", "--describe --group m1 --offsets --verbose"),
    _step("describe the members of all groups and their partitions", "--describe --all-groups --members --verbose"),
    _step("reset offsets of a group in use", "--reset-offsets --group m1 --topic g1 --to-earliest --execute"),
    _step("reset offsets of all groups, one of them in use", "--reset-offsets --all-groups --topic g1 --to-latest --execute"),
    _step("delete offsets of a group in use", "--delete-offsets --group m1 --topic g1"),
    _step("delete offsets that a group in use does not read", "--delete-offsets --group m1 --topic g2"),
    _step("delete a group in use", "--delete --group m1"),
    _step("delete groups, one of them in use", "--delete --group m1 --group p1"),
]  # fmt: skip

AT_THE_END = [
    _step("delete groups", "--delete --group c1 --group c2"),
    _step("delete a group that is not there", "--delete --group nowhere"),
    _step("delete all groups", "--delete --all-groups"),
    _step("list groups after deleting", "--list"),
]

_NOT_FOUND = "GroupIdNotFoundException: Group nowhere not found."
KAFKA_4_SAYS = {
    "describe a group that is not there": _NOT_FOUND,
    "describe the members of a group that is not there": _NOT_FOUND,
    "describe the state of a group that is not there": _NOT_FOUND,
}
"""Output of 4.3's tools at a broker that answers in versions that Kafka 3.9 does not have, as real Kafka 4.3 does."""

GROUP_SESSION = [*CONSUMERS, *AT_REST, *IN_USE, *AT_THE_END]


def run_group_session(run: Run, bootstrap: str, directory: Path) -> dict[str, Outcome]:
    asker = Asker(int(bootstrap.rpartition(":")[2]))
    for topic in ("g1", "g2"):
        asker.create(topic, retention_ms="-1")  # its records are of 2023
    (directory / "offsets.csv").write_text('"g1",0,5\n"g2",0,4\n')
    (directory / "groups.csv").write_text('"c1","g1",0,3\n"c2","g2",0,2\n')

    def run_all(steps: list[Step]) -> dict[str, Outcome]:
        return {step.name: run(step, bootstrap, directory) for step in steps}

    with contextlib.closing(asker.client):
        found = run_all([*CONSUMERS, *AT_REST])
        with reading(asker.port):
            found |= run_all(IN_USE)
        return found | run_all(AT_THE_END)


@contextlib.contextmanager
def reading(port: int) -> Iterator[None]:
    """A group m1 whose member has the only partition of g1 and has committed offset 2."""
    with group_of(port, "m1", "reader", topic="g1", session_timeout_ms=SESSION_MS) as (member,):
        member.sync({member.id: assignment("g1", [0])})
        assert member.commit("g1", 2) == 0
        yield
