"""One broker for all tests of a module: what one of them leaves behind is what the next one meets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.log.checkpoint import META_PROPERTIES
from kafkad.wire.messages.describe_groups import DescribeGroupsRequest
from kafkad.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkad.wire.messages.list_groups import ListGroupsRequest
from tests.fuzz.running import RunningBroker, framed, request, sentinel
from tests.log.consistency import check

KAFKAS_LOGS = Path(__file__).parent.parent / "golden" / "logs" / "main"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Started on what a real Kafka left, so that requests of the time find their topics."""
    home = tmp_path_factory.mktemp("broker")
    directory = home / "logs"
    shutil.copytree(KAFKAS_LOGS, directory, copy_function=shutil.copyfile)
    (home / "second").mkdir()
    shutil.copyfile(directory / META_PROPERTIES, home / "second" / META_PROPERTIES)
    running = RunningBroker([directory, home / "second"], "group.initial.rebalance.delay.ms=0")
    end_old_groups(running)
    running.complaints.seen.clear()
    yield running
    status = running.stop()
    assert (status, running.complaints.seen) == (0, [])
    left = [path for path in (*directory.iterdir(), *(home / "second").iterdir()) if path.is_dir()]
    assert [problem for path in left if not path.name.endswith("-delete") for problem in check(str(path))] == []


def end_old_groups(running: RunningBroker) -> None:
    """Members of the time do not come back; nobody is to wait until their sessions have ended."""

    def ask(message: Any, version: int) -> Any:
        return running.converse(framed(request(message, version)), sentinel()).answers[0].message

    while (listed := ask(ListGroupsRequest(), 0)).error_code:
        pass
    groups = [group.group_id for group in listed.groups]
    for group in ask(DescribeGroupsRequest(groups=groups), 0).groups:
        members = [MemberIdentity(member_id=member.member_id) for member in group.members]
        ask(LeaveGroupRequest(group_id=group.group_id, members=members), 3)
