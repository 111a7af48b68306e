"""Questions about consumer groups, each asked when the group is in the state that matters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.clients.asker import Asker, Plain
from tests.clients.members import Member, commit, group_of, join, stable_group, wait_for_coordinator

Asked = tuple[str, Any]
"""A named question, or what was answered to it already."""


def prepare(asker: Asker, group: str) -> None:
    """The group of no name is the one that probes share: none finds in it what another left."""
    wait_for_coordinator(asker, group)
    asker.ask("DeleteGroups", 2, {"groups_names": [""]})


def ask_find_coordinator(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)

    def find(*keys: str, **more: Plain) -> Plain:
        return {"key": keys[0], "coordinator_keys": list(keys), **more}

    yield "a group", find(topic)
    yield "an empty group id", find("")
    if version >= 4:
        yield "several groups", find(topic, "", "another")
        yield "none", {"coordinator_keys": []}
    if version >= 1:
        yield "an unknown kind of key", find(topic, key_type=9)


def ask_join_group(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    yield "an empty group id", join("")
    yield "a short session", join(topic, session_timeout_ms=1000)
    yield "a long session", join(topic, session_timeout_ms=1_800_001)
    yield "an unknown member of no group", join(topic, member_id="nobody")
    yield "no protocols", join(topic, protocols=[])
    yield "no protocol type", join(topic, protocol_type="")
    if version >= 4:
        yield "without an id", join(f"{topic}-id")
    with contextlib.ExitStack() as stack:
        first = Member(asker.port, topic, "first", "range", "roundrobin")
        second = Member(asker.port, topic, "second", "roundrobin", "sticky")
        for member in (first, second):
            stack.callback(member.close)
        yield "the first member", first.join(version)
        yield "the leader again, before it has synchronised", first.join(version)
        first.sync({first.id: b"all"})
        yield "the leader again", first.join(version)
        first.sync({first.id: b"all"})
        second.start_join(version)
        first.wait_for_rebalance()
        yield "the leader with a follower", first.join(version)
        yield "the follower", second.joined(version)
        yield "the follower again, before it has synchronised", second.join(version)
        first.sync({first.id: b"one", second.id: b"another"})
        yield "the follower again", second.join(version)
        yield "an unknown member", join(topic, "roundrobin", member_id="nobody")
        yield "another protocol type", join(topic, protocol_type="connect")
        yield "a protocol that not all have", join(topic, "range")
        yield "no common protocol", join(topic, "cooperative-sticky")
    if version >= 5:
        yield from _ask_static_join(asker, version, f"{topic}-static")


def _ask_static_join(asker: Asker, version: int, group: str) -> Iterator[Asked]:
    def static(member_id: str = "", **more: Plain) -> Plain:
        return join(group, group_instance_id="one", member_id=member_id, **more)

    yield "a static member with an id that is not its own", static("nobody")
    member = Member(asker.port, group, "first", group_instance_id="one")
    successor = Member(asker.port, group, "successor", group_instance_id="one")
    with contextlib.closing(member), contextlib.closing(successor):
        yield "a static member", member.join(version)
        member.sync({member.id: b"all"})
        yield "its successor", successor.join(version)
        yield "the one succeeded", static(member.id)
        yield "the successor with its id", successor.join(version)
        yield "an unknown static member", static("nobody") | {"group_instance_id": "two"}


def ask_sync_group(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    with group_of(asker.port, topic, "first", "second") as (first, second):
        nobody = first.assignments({}) | {"member_id": "nobody"}
        yield "an empty group id", nobody | {"group_id": ""}
        yield "an unknown group", nobody | {"group_id": "nowhere"}
        yield "an unknown member", nobody
        yield "an old generation", first.assignments({}) | {"generation_id": first.generation - 1}
        if version >= 5:
            yield "another protocol", first.assignments({}) | {"protocol_name": "sticky"}
            yield "another protocol type", first.assignments({}) | {"protocol_type": "connect"}
            yield "no protocol", first.assignments({}) | {"protocol_name": None, "protocol_type": None}
        second.asker.send("SyncGroup", version, second.assignments({}))
        yield "the leader", first.assignments({first.id: b"\0one", second.id: b"\1two", "stranger": b"none"})
        yield "the follower", second.asker.receive("SyncGroup", version)
        yield "the follower again", second.assignments({})
        yield "the leader again, with another assignment", first.assignments({first.id: b"three"})
        first.start_join()
        second.wait_for_rebalance()
        second.start_join()
        first.joined()
        second.joined()
        second.asker.send("SyncGroup", version, second.assignments({second.id: b"four"}))
        yield "the leader, with nothing for the follower", first.assignments({first.id: b"all"})
        yield "the follower with an assignment", second.asker.receive("SyncGroup", version)
    with stable_group(asker.port, f"{topic}-rebalancing", "first", "second") as (first, second):
        first.start_join()
        second.wait_for_rebalance()
        yield "while the others join", second.assignments({})
    if version >= 3:
        with stable_group(asker.port, f"{topic}-static", "first", group_instance_id="one") as (first,):
            yield "a static member", first.assignments({})
            yield "a static member with an id that is not its own", first.assignments({}) | {"member_id": "nobody"}
            yield "an unknown static member", first.assignments({}) | {"group_instance_id": "two"}


def ask_heartbeat(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    with group_of(asker.port, topic, "first", "second") as (first, second):
        yield "before the leader has synchronised", first.identity()
        yield "an empty group id", first.identity() | {"group_id": ""}
        yield "an unknown group", first.identity() | {"group_id": "nowhere"}
        first.sync({})
        yield "a member", first.identity()
        yield "an unknown member", first.identity() | {"member_id": "nobody"}
        yield "an old generation", first.identity() | {"generation_id": first.generation - 1}
        yield "a future generation", first.identity() | {"generation_id": first.generation + 1}
        first.start_join()
        second.wait_for_rebalance()
        yield "while the others join", second.identity()
        yield "an old generation while the others join", second.identity() | {"generation_id": 0}
    if version >= 3:
        with stable_group(asker.port, f"{topic}-static", "first", group_instance_id="one") as (first,):
            yield "a static member", first.identity()
            yield "a static member with an id that is not its own", first.identity() | {"member_id": "nobody"}
            yield "an unknown static member", first.identity() | {"group_instance_id": "two"}


def leave(group: str, *members: Plain) -> Plain:
    return {"group_id": group, "member_id": members[0]["member_id"], "members": list(members)}


def ask_leave_group(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    nobody = {"member_id": "nobody", "reason": "probing"}
    yield "an unknown group", leave(topic, nobody)
    yield "an empty group id", leave("", nobody)
    with stable_group(asker.port, topic, "first", "second", "third") as (first, second, third):
        yield "an unknown member", leave(topic, nobody)
        yield "a member", leave(topic, {"member_id": third.id})
        yield "it again", leave(topic, {"member_id": third.id})
        if version >= 3:
            yield "none", {"group_id": topic, "members": []}
            both = [{"member_id": member.id} for member in (first, second)]
            yield "several members", leave(topic, *both, nobody)
    if version >= 3:
        with stable_group(asker.port, f"{topic}-static", "first", group_instance_id="one") as (first,):
            static = {"member_id": "", "group_instance_id": "one"}
            yield "a static member of another id", leave(first.group, static | {"member_id": "nobody"})
            yield "an unknown static member", leave(first.group, static | {"group_instance_id": "two"})
            yield "a static member by its instance", leave(first.group, static)


def ask_offset_commit(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    known = asker.topic_id(topic)

    def ask(offset: int, metadata: str | None = "kept", group: str = topic, **more: Plain) -> Plain:
        question = commit(topic, offset, metadata, commit_timestamp=-1, committed_leader_epoch=0)
        question["topics"][0]["topic_id"] = known
        return question | {"group_id": group, "generation_id_or_member_epoch": -1, **more}

    def by(member: Member, **more: Plain) -> Plain:
        return ask(4) | member.identity() | {"generation_id_or_member_epoch": member.generation, **more}

    yield "without a group", ask(3)
    yield "without metadata", ask(3, None)
    yield "the longest metadata", ask(3, "m" * 4096)
    yield "longer metadata", ask(3, "m" * 4097)
    yield "a negative offset", ask(-1)
    yield "an empty group id", ask(3, group="")
    yield "no topics", ask(3, topics=[])
    if version < 10:  # 4.3 has another code for it from there on
        yield "a generation of a group that is not there", ask(3, group="nowhere", generation_id_or_member_epoch=1)
    yield "unknown topics and partitions", _unknown(ask(3))
    if 2 <= version <= 4:
        yield "with a time of its own", ask(3, retention_time_ms=100_000)
    with group_of(asker.port, f"{topic}-members", "first", "second") as (first, second):
        yield "before the leader has synchronised", by(first)
        first.sync({})
        yield "a member", by(first)
        yield "an unknown member", by(first, member_id="nobody")
        yield "an old generation", by(first, generation_id_or_member_epoch=first.generation - 1)
        yield "no member of a group with members", ask(3, group=first.group)
        first.start_join()
        second.wait_for_rebalance()
        yield "while the others join", by(second)
    if version >= 7:
        with stable_group(asker.port, f"{topic}-static", "first", group_instance_id="one") as (first,):
            yield "a static member", by(first)
            yield "a static member with an id that is not its own", by(first, member_id="nobody")
            yield "an unknown static member", by(first, group_instance_id="two")


def _unknown(question: Plain) -> Plain:
    (known,) = question["topics"]
    (partition,) = known["partitions"]
    elsewhere = known | {"partitions": [partition, partition | {"partition_index": 9}]}
    nowhere = known | {"name": "nowhere", "topic_id": b"x" * 16}
    return question | {"topics": [elsewhere, nowhere]}


def ask_offset_fetch(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    known = asker.topic_id(topic)
    kept = commit(topic, 5, "kept", committed_leader_epoch=0) | {"group_id": topic}
    asker.ask("OffsetCommit", 0 if version == 0 else 8, kept)

    def ask(group: str, *topics: str, **more: Plain) -> Plain:
        asked = [{"name": name, "partition_indexes": [0, 9]} for name in topics]
        asked = [item | {"topic_id": known if item["name"] == topic else b"x" * 16} for item in asked]
        one = {"group_id": group, "topics": asked or None, **more}
        return {**one, "groups": [one]}

    yield "a topic", ask(topic, topic, "nowhere")
    yield "an unknown group", ask("nowhere", topic)
    if version >= 1:  # version 0 asks the metadata store, and each says in its own way that this is no path
        yield "an empty group id", ask("", topic)
    if version >= 2:
        yield "all topics", ask(topic)
        yield "all topics of an unknown group", ask("nowhere")
    if version >= 7:
        yield "only what is stable", ask(topic, topic) | {"require_stable": True}
    if version >= 8:
        yield "several groups", {"groups": [ask(group)["groups"][0] for group in (topic, "nowhere", "")]}
    if version >= 9:
        yield "by a member that is not there", ask(topic, topic, member_id="nobody", member_epoch=3)


def ask_offset_delete(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)

    def ask(group: str, *partitions: int, name: str = topic) -> Plain:
        listed = [{"partition_index": partition} for partition in partitions]
        return {"group_id": group, "topics": [{"name": name, "partitions": listed}]}

    kept = commit(topic, 5)
    asker.ask("OffsetCommit", 8, kept | {"group_id": topic})
    yield "an unknown partition", ask(topic, 0, 9)
    yield "what is gone", ask(topic, 0)
    yield "an unknown topic", ask(topic, 0, name="nowhere")
    yield "an unknown group", ask("nowhere", 0)
    yield "an empty group id", ask("", 0)
    for kind in ("consumer", "connect"):
        group = f"{topic}-{kind}"
        with stable_group(asker.port, group, "first", topic=topic, protocol_type=kind) as (member,):
            assert member.commit(topic, 5) == 0
            yield f"of a {kind} group", ask(group, 0)
            yield f"of a topic unknown to a {kind} group", ask(group, 0, name="nowhere")


def ask_describe_groups(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    yield "unknown groups", {"groups": ["nowhere", ""]}
    asker.ask("OffsetCommit", 8, commit(topic, 5) | {"group_id": topic})
    yield "a group of no members", {"groups": [topic]}
    if 3 <= version < 6:  # there are more operations in 4.3
        yield "with operations", {"groups": [topic], "include_authorized_operations": True}
    with contextlib.ExitStack() as stack:
        for name in ("synchronising", "joining", "stable"):
            group = f"{topic}-{name}"
            form = group_of if name == "synchronising" else stable_group
            first, second = stack.enter_context(form(asker.port, group, "first", "second"))
            if name == "joining":
                first.start_join()
                second.wait_for_rebalance()
            if name != "joining" or version < 6:  # 4.3 keeps showing what was assigned before
                yield f"a group that is {name}", {"groups": [group]}
    with stable_group(asker.port, f"{topic}-static", "first", group_instance_id="one") as (first,):
        yield "a static member", {"groups": [first.group]}


def ask_list_groups(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    asker.ask("OffsetCommit", 8, commit(topic, 5) | {"group_id": topic})
    with (
        group_of(asker.port, f"{topic}-synchronising", "first"),
        stable_group(asker.port, f"{topic}-joining", "first", "second") as (first, second),
        stable_group(asker.port, f"{topic}-stable", "first", protocol_type="connect"),
    ):
        first.start_join()
        second.wait_for_rebalance()
        yield "all", {}
        if version >= 4:
            for states in (["Stable"], ["Empty", "PreparingRebalance"], ["CompletingRebalance"], ["stable"], ["none"]):
                yield f"those in state {' or '.join(states)}", {"states_filter": states}
        if version >= 5:
            for types in (["classic"], ["Classic"], ["consumer"], ["none"]):
                yield f"those of type {types[0]}", {"types_filter": types}
            yield "stable classic ones", {"states_filter": ["Stable"], "types_filter": ["classic"]}


def ask_delete_groups(asker: Asker, version: int, topic: str) -> Iterator[Asked]:
    prepare(asker, topic)
    asker.ask("OffsetCommit", 8, commit(topic, 5) | {"group_id": topic})
    yield "one without members", {"groups_names": [topic]}
    yield "it again", {"groups_names": [topic]}
    yield "none", {"groups_names": []}
    with stable_group(asker.port, f"{topic}-members", "first"):
        yield "several", {"groups_names": [f"{topic}-members", "nowhere", ""]}


PROBES = {
    "FindCoordinator": ask_find_coordinator,
    "JoinGroup": ask_join_group,
    "SyncGroup": ask_sync_group,
    "Heartbeat": ask_heartbeat,
    "LeaveGroup": ask_leave_group,
    "OffsetCommit": ask_offset_commit,
    "OffsetFetch": ask_offset_fetch,
    "OffsetDelete": ask_offset_delete,
    "DescribeGroups": ask_describe_groups,
    "ListGroups": ask_list_groups,
    "DeleteGroups": ask_delete_groups,
}
