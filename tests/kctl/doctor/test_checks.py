"""Each check by itself, over facts made for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kctl.acls.bindings import Binding, Resource
from kctl.brokers.facts import BrokerFacts
from kctl.doctor.command import CHECKS, look, needs_of, not_looked_at
from kctl.doctor.facts import ACLS, BROKER_SETTINGS, DIRECTORIES, HEALTH, Facts, grown, retention_ms
from kctl.doctor.finding import Finding, Severity
from kctl.doctor.groups import stuck
from kctl.doctor.health import HealthReport
from kctl.errors import KctlError
from kctl.groups.committed import Commit
from kctl.groups.group import Group, Member
from kctl.groups.group_lag import GroupLag
from kctl.groups.members import member_rows
from kctl.groups.partition_lag import BEYOND, DELETED, PartitionLag
from kctl.groups.recent_commits import Recent
from kctl.partitions.throttle import Throttles
from kctl.partitions.throttle_settings import Setting, Transfer
from kctl.reach.log_dirs import LogDir
from kctl.topics.readers import Readers, sorted_out
from kctl.txns.asking import Transaction
from kctl.txns.lingering import Lingering
from tests.work import is_linear

ERROR, WARN, INFO = Severity.ERROR, Severity.WARN, Severity.INFO
API, BEFORE_3_7 = {0: (0, 11)}, {0: (0, 9)}


def broker(number: int, **changed: Any) -> BrokerFacts:
    known = BrokerFacts(
        id=number,
        host="h",
        port=9092,
        rack="abc"[number - 1],
        release="3.9",
        leaders=10,
        partitions=30,
        under_replicated=0,
        size_bytes=0,
        free_bytes=90,
        total_bytes=100,
        is_controller=number == 1,
        state="ok",
    )
    return known._replace(**changed)


def topic(name: str, *partitions: tuple[int, list[int], list[int]], offline: tuple[int, ...] = ()) -> Any:
    """`offline`: brokers whose disk with its replicas is away."""
    return MetadataResponseTopic(
        name=name,
        partitions=[
            MetadataResponsePartition(
                partition_index=at,
                leader_id=leader,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=[broker for broker in replicas if broker in offline],
            )
            for at, (leader, replicas, isr) in enumerate(partitions)
        ],
    )


DAY_MS = 86_400_000
WELL = (1, [1, 2, 3], [1, 2, 3])
ONGOING = Lingering(Transaction("app", "Ongoing", 7, 0, 900_000, 1_000, (TopicPartition("t", 1),)))
DECIDED = Lingering(
    ONGOING.transaction._replace(state="PrepareCommit"), None, ("t-1 (leader 2 is down)", "t-2 (leader 2 is down)")
)
ALLOWED = Binding("User:*", "*", "All", Resource("topic", "*"), "allow")
LAX = {
    2: {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "allow.everyone.if.no.acl.found": "TRUE"}
}
HIDDEN = {2: {**LAX[2], "allow.everyone.if.no.acl.found": None}}
"""As Kafka describes it: without the value."""
HEALTHY = Facts(
    now_ms=0,
    controller_id=1,
    topics=(topic("orders", WELL),),
    brokers=(broker(1), broker(2), broker(3)),
    directories=(LogDir(1, "/d", 100, 50, None, ()),),
    versions={1: API, 2: API, 3: API},
    topic_settings={"orders": {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}},
    broker_settings={1: {"auto.create.topics.enable": "false", "unclean.leader.election.enable": "false"}},
    throttles=Throttles({}, {}, [], []),
)


def found(facts: Facts, check: str) -> list[Finding]:
    return [finding for by, finding in look(facts, CHECKS) if by.id == check]


def test_a_healthy_cluster_has_no_findings() -> None:
    assert look(HEALTHY, CHECKS) == []


def test_each_certificate_that_expires_soon_is_a_finding() -> None:
    """Whichever broker was asked first: the others' may be renewed, or not."""
    one, other = found(
        HEALTHY._replace(certificate_until_ms={1: 20 * DAY_MS, 2: DAY_MS, 3: 300 * DAY_MS}), "certificate"
    )
    assert (one.severity, one.items) == (ERROR, ("broker/2",))
    assert (other.severity, other.items) == (WARN, ("broker/1",))
    assert "ssl.keystore.location" in one.fix and "another authority has to be in all truststores before" in one.fix


def test_brokers_since_3_7_ask_for_no_more_in_sync_than_there_are_replicas() -> None:
    single = HEALTHY._replace(topics=(topic("orders", (1, [1], [1])),))
    assert found(single, "min-isr-settings") == found(single, "min-isr") == []


def test_what_a_move_adds_is_not_missed() -> None:
    facts = HEALTHY._replace(topics=(topic("orders", (1, [1, 2, 3], [1, 2])),))
    moving = facts._replace(adding={WHERE: (3,)})
    for check in ("under-replicated", "min-isr"):
        assert len(found(facts, check)) == 1 and found(moving, check) == []
        assert len(found(facts._replace(adding={WHERE: (2,)}), check)) == 1


def test_acks_all_is_refused_while_a_move_adds_what_min_isr_asks_for() -> None:
    moving = HEALTHY._replace(topics=(topic("orders", (1, [1, 2, 3], [1])),), adding={WHERE: (2, 3)})
    (below,) = found(moving, "min-isr")
    assert (below.severity, below.items) == (ERROR, (str(WHERE),))
    assert found(moving, "under-replicated") == []


def test_a_full_disk_is_told_what_makes_room() -> None:
    (full,) = found(HEALTHY._replace(directories=(LogDir(1, "/d", 100, 1, None, ()),)), "disks")
    assert full.fix is not None and full.fix.startswith("kctl topics list --sort -size_bytes")


@pytest.mark.parametrize(
    ("changed", "until"),
    [
        ({"controller_id": -1}, "there is a controller"),
        ({"health": {1: HealthReport((), (), "refused"), 2: HealthReport((), ())}}, "ZooKeeper is back"),
        ({"controller_id": 9, "health": dict.fromkeys((1, 2), HealthReport((), (), "refused"))}, "ZooKeeper is back"),
        (
            {"health": {2: HealthReport((), (), refusing="the disk is full: changes of metadata are refused")}},
            "the disk of the metadata takes changes",
        ),
    ],
)
def test_a_fix_that_changes_metadata_says_when_that_is_possible_again(changed: dict[str, Any], until: str) -> None:
    moved = HEALTHY._replace(topics=(topic("t", (2, [1, 2], [1, 2])),), brokers=(broker(1, leaders=30), broker(2)))
    waiting = moved._replace(**changed)
    for check in ("preferred-leaders", "leaders"):
        (now,), (later,) = found(moved, check), found(waiting, check)
        assert later == now._replace(fix=f"once {until}: {now.fix}")


@pytest.mark.parametrize(
    "health",
    [
        {1: HealthReport((), ()), 2: HealthReport((), (), "refused")},
        {2: HealthReport((), (), "refused")},
        {1: HealthReport((), (), refusing="the disk is nearly full: no topics are created until 1 GB are free")},
    ],
    ids=["one of two kafkads is cut off", "one kafkad beside a Kafka is cut off", "room for changes"],
)
def test_what_one_broker_tells_keeps_nothing_from_being_changed(health: dict[int, HealthReport]) -> None:
    moved = HEALTHY._replace(topics=(topic("t", (2, [1, 2], [1, 2])),), health=health)
    (finding,) = found(moved, "preferred-leaders")
    assert finding.fix == "kctl partitions elect --preferred --all"


@pytest.mark.parametrize(
    ("check", "changed", "otherwise"),
    [
        ("leaders", {"brokers": (broker(1, leaders=30), broker(2))}, "kctl partitions plan --balance leaders"),
        (
            "coordinators",
            {"groups": {f"g{n}": GroupLag(Group(f"g{n}", "Stable", coordinator=1), {}, []) for n in range(100)}},
            "",
        ),
    ],
)
def test_an_election_is_advised_only_where_it_would_move_a_leader(
    check: str, changed: dict[str, Any], otherwise: str
) -> None:
    crowded = HEALTHY._replace(**changed)
    (finding,) = found(crowded, check)
    assert finding.fix == otherwise
    (finding,) = found(crowded._replace(controller_id=-1), check)
    assert finding.fix == (otherwise and f"once there is a controller: {otherwise}")
    (finding,) = found(crowded._replace(topics=(topic("t", (2, [1, 2], [1, 2])),)), check)
    assert finding.fix.startswith("kctl partitions elect --preferred --all")


@pytest.mark.parametrize(
    ("check", "changed"),
    [
        ("settings", {"broker_settings": {1: {"unclean.leader.election.enable": "true"}}}),
        ("open-without-acls", {"broker_settings": LAX}),
    ],
)
def test_a_change_of_settings_or_acls_waits_for_a_controller(check: str, changed: dict[str, Any]) -> None:
    (finding,) = found(HEALTHY._replace(controller_id=-1, **changed), check)
    assert finding.fix.startswith("once there is a controller: ")


@pytest.mark.parametrize(("check", "is_asked"), [("single-replica", True), ("offline", False)])
def test_a_check_whose_fix_is_a_change_asks_whether_there_can_be_one(check: str, is_asked: bool) -> None:
    needs = needs_of([each for each in CHECKS if each.id == check])
    assert ({HEALTH, BROKER_SETTINGS} <= needs) is is_asked


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    ("check", "changed", "severity", "told"),
    [
        ("offline", {"topics": (topic("t", (-1, [3], [3])),)}, ERROR, "1 partition without a leader"),
        ("under-replicated", {"topics": (topic("t", (1, [1, 2], [1])),)}, WARN, "1 partition under-replicated"),
        ("min-isr", {"topics": (topic("orders", (1, [1, 2, 3], [1])),)}, ERROR, "below min.insync.replicas"),
        ("min-isr", {"topics": (topic("orders", (1, [1, 2, 3], [1, 2])),)}, WARN, "one more failure"),
        ("preferred-leaders", {"topics": (topic("t", (2, [1, 2], [1, 2])),)}, INFO, "preferred replica"),
        ("single-replica", {"topics": (topic("t", (1, [1], [1])),)}, INFO, "1 topic with one replica"),
        ("single-replica", {"topics": (topic("__consumer_offsets", (1, [1], [1])),)}, WARN, "groups stand still"),
        ("min-isr-settings", {"topics": (topic("orders", (1, [1, 2], [1, 2])),)}, WARN, "one failure stops writes"),
        (
            "min-isr-settings",
            {"topics": (topic("orders", (1, [1], [1])),), "versions": {1: BEFORE_3_7}},
            ERROR,
            "more replicas in sync than",
        ),
        ("min-isr", {"topics": (topic("orders", (1, [1], [1])),), "versions": {1: BEFORE_3_7}}, ERROR, "is refused"),
        (
            "unclean-elections",
            {"topic_settings": {"t": {"unclean.leader.election.enable": "true"}}},
            WARN,
            "may lose records",
        ),
        ("brokers-down", {"brokers": (broker(1), broker(2, host=None, release=None))}, ERROR, "broker 2 is down"),
        *(
            ("brokers-down", {"brokers": (broker(1), broker(2, release=None, state=state))}, ERROR, f"{told} at h:9092")
            for state, told in (
                ("no answer", "registered, and does not answer"),
                ("no access", "registered, and TLS or the login fails"),
                ("other cluster", "registered, and another cluster's broker answers"),
            )
        ),
        ("controller", {"controller_id": -1}, ERROR, "no broker is the controller"),
        (
            "zookeeper",
            {"health": {1: HealthReport((), (), "refused"), 2: HealthReport((), ())}},
            ERROR,
            "without a connection to ZooKeeper: 1;",
        ),
        (
            "metadata",
            {"health": {1: HealthReport((), (), refusing="the disk of /m is full: changes of metadata are refused")}},
            ERROR,
            "the disk of /m is full",
        ),
        ("disks", {"directories": (LogDir(1, "/d", 100, 10, None, ()),)}, WARN, "10% free (10 B)"),
        ("disks", {"directories": (LogDir(1, "/d", 100, 4, None, ()),)}, ERROR, "4% free"),
        ("disks", {"directories": (LogDir(1, "/d", None, None, KctlError("x"), ()),)}, ERROR, "is offline"),
        ("filling", {"growth": {(1, "/d"): 50 / 86_400 / 3}}, WARN, "full in 3d00h"),
        ("filling", {"growth": {(1, "/d"): 50 / 3600}}, ERROR, "full in 1h00m"),
        ("damage", {"health": {1: HealthReport(("t-0: cut",), ())}}, ERROR, "a log is damaged: t-0: cut"),
        (
            "exposed",
            {"health": {1: HealthReport((), ("listener A is PLAINTEXT; give it TLS",))}},
            WARN,
            "listener A is PLAINTEXT",
        ),
        ("acls", {"acls": (ALLOWED,)}, WARN, "ACLs let everybody"),
        ("open-without-acls", {"broker_settings": LAX}, WARN, "there are no ACLs, so that everybody may do everything"),
        (
            "open-without-acls",
            {"broker_settings": LAX, "acls": (ALLOWED._replace(principal="User:alice"),)},
            INFO,
            "everybody may do what no ACL is about: allow.everyone.if.no.acl.found is true",
        ),
        (
            "open-without-acls",
            {"broker_settings": HIDDEN},
            INFO,
            "allow.everyone.if.no.acl.found is set, and brokers do not tell to what; if it is true, there are no ACLs",
        ),
        (
            "open-without-acls",
            {"broker_settings": HIDDEN, "acls": (ALLOWED._replace(principal="User:alice"),)},
            INFO,
            "if it is true, everybody may do what no ACL is about",
        ),
        ("unmatched-acls", {"acls": (ALLOWED._replace(host="10.0.0.0/8"),)}, WARN, "1 ACL that can never match"),
        ("unmatched-acls", {"acls": (ALLOWED._replace(operation="ClusterAction"),)}, WARN, "1 ACL that can never"),
        ("unmatched-acls", {"acls": (ALLOWED._replace(principal="Group:*"),)}, WARN, "1 ACL that can never match"),
        (
            "unmatched-acls",
            {"acls": (ALLOWED._replace(resource=Resource("topic", "*", "prefixed")),)},
            WARN,
            "1 ACL that can never match",
        ),
        ("leaders", {"brokers": (broker(1, leaders=30), broker(2), broker(3))}, WARN, "broker 1 leads 60%"),
        ("racks", {"brokers": (broker(1, rack=None), broker(2))}, WARN, "1 broker without a rack"),
        ("racks", {"brokers": (broker(1, rack=None), broker(2, rack=None, host="i"))}, INFO, "no broker has a rack"),
        ("versions", {"versions": {1: API, 2: {0: (0, 12)}}}, WARN, "different versions of the protocol: 1 / 2"),
        ("settings", {"broker_settings": {1: {"auto.create.topics.enable": "true"}}}, INFO, "misspells"),
        ("settings", {"broker_settings": {1: {"unclean.leader.election.enable": "true"}}}, WARN, "records are lost"),
        (
            "certificate",
            {"certificate_until_ms": {1: 90 * DAY_MS, 2: 41 * DAY_MS // 2}},
            WARN,
            "broker 2 expires in 20d12h",
        ),
        (
            "clocks",
            {"newest": {TopicPartition("t", 0): 7_200_000}},
            WARN,
            "1 partition with records from the future (up to 2h00m",
        ),
        (
            "certificate",
            {"certificate_until_ms": {1: 90 * DAY_MS, 2: 2 * DAY_MS, 3: 2 * DAY_MS}},
            ERROR,
            "broker 2, 3 expires in 2d00h",
        ),
        (
            "hanging-transactions",
            {"hanging": ({"topic": "t", "partition": 1, "age_ms": 60000, "why": "w", "fix": "f"},)},
            ERROR,
            "hangs on t-1 since 1m00s: w",
        ),
        (
            "long-transactions",
            {"transactions": (ONGOING,), "now_ms": 400_000},
            WARN,
            "the transaction of app is open since 6m39s (its time-out is 15m00s): readers of 1 partition wait",
        ),
        (
            "long-transactions",
            {"transactions": (ONGOING,), "now_ms": 1_000_000},
            ERROR,
            "is open since 16m39s: its coordinator should have aborted it after 15m00s",
        ),
        (
            "stuck-transactions",
            {"transactions": (DECIDED._replace(decided_ms=20_000),), "now_ms": 40_000},
            ERROR,
            "the commit of app is stuck since 20s: it waits for t-1 (leader 2 is down) and 1 more",
        ),
        (
            "stuck-transactions",
            {"transactions": (DECIDED,), "now_ms": 1_000_000},
            ERROR,
            "the commit of app is stuck since 39s: it waits for t-1 (leader 2 is down) and 1 more",
        ),
    ],
)
def test_what_is_wrong_is_found(check: str, changed: dict[str, Any], severity: Severity, told: str) -> None:
    (finding,) = found(HEALTHY._replace(**changed), check)
    assert finding.severity == severity
    assert told in finding.summary


@pytest.mark.parametrize("brokers", [2, 4])
def test_both_topics_of_coordinators_get_as_many_replicas_as_there_can_be_up_to_three(brokers: int) -> None:
    topics = tuple(topic(name, (1, [1], [1])) for name in ("t", "__consumer_offsets", "__transaction_state"))
    known = (broker(1), *(broker(2)._replace(id=number) for number in range(2, brokers + 1)))
    alone, others = found(HEALTHY._replace(topics=topics, brokers=known), "single-replica")
    assert (alone.severity, alone.items) == (WARN, ("__consumer_offsets", "__transaction_state"))
    assert "with its broker the groups and transactions stand still" in alone.summary
    assert alone.fix == f"kctl partitions plan --rf {min(brokers, 3)} --topics __consumer_offsets,__transaction_state"
    assert (others.severity, others.items) == (INFO, ("t",))


@pytest.mark.parametrize(
    ("brokers", "leader", "waits"),
    [
        (3, 1, "once broker 3 is back: "),  # there are two for three replicas
        (4, 1, ""),
        (4, -1, "once broker 4 is back: "),  # there is nothing to copy from
    ],
)
def test_more_replicas_wait_for_brokers_that_are_down(brokers: int, leader: int, waits: str) -> None:
    there = tuple(broker(1)._replace(id=number) for number in range(1, brokers))
    away = broker(1)._replace(id=brokers, host=None, port=None, rack=None, release=None)
    held = brokers if leader < 0 else 1
    topics = (topic("__consumer_offsets", (leader, [held], [held])), topic("t", (1, [1], [1])))
    alone, other = found(HEALTHY._replace(topics=topics, brokers=(*there, away)), "single-replica")
    assert alone.fix == f"{waits}kctl partitions plan --rf 3 --topics __consumer_offsets"
    assert other.fix == "kctl partitions plan --rf 2 --topics NAME"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("__consumer_offsets", "1 partition of __consumer_offsets without a leader: their groups stand still"),
        ("__transaction_state", "1 partition of __transaction_state without a leader: their transactions stand still"),
    ],
)
def test_what_stands_still_with_a_partition_of_coordinators_is_told_apart(name: str, told: str) -> None:
    topics = (topic(name, (-1, [2], [2]), WELL, offline=(2,)), topic("t", (-1, [3], [3])))
    brokers = (broker(1), broker(2), broker(3, host=None, release=None))
    of_coordinators, of_others = found(HEALTHY._replace(topics=topics, brokers=brokers), "offline")
    assert told in of_coordinators.summary
    assert (of_coordinators.severity, of_coordinators.items) == (ERROR, (f"{name}-0",))
    assert "the offline disk of broker 2 (kctl brokers log-dirs)" in of_coordinators.fix
    assert "1 partition without a leader: nobody can read or write" in of_others.summary
    assert (of_others.items, of_others.fix) == (("t-0",), "start broker 3")


@pytest.mark.parametrize(
    "acl",
    [
        ALLOWED._replace(permission="deny"),
        ALLOWED._replace(principal="User:alice"),
        ALLOWED._replace(operation="Describe"),
        ALLOWED._replace(host="10.0.0.1"),
        ALLOWED._replace(host="fd00::1", operation="15"),
        ALLOWED._replace(resource=Resource("topic", "orders")),
    ],
)
def test_acls_that_are_in_order(acl: Binding) -> None:
    facts = HEALTHY._replace(acls=(acl,))
    assert [found(facts, check) for check in ("acls", "unmatched-acls")] == [[], []]


@pytest.mark.parametrize(
    "facts",
    [
        HEALTHY._replace(broker_settings={1: {"authorizer.class.name": LAX[2]["authorizer.class.name"]}}),
        HEALTHY._replace(broker_settings={1: {**LAX[2], "authorizer.class.name": ""}}),
        HEALTHY._replace(broker_settings={1: {**LAX[2], "allow.everyone.if.no.acl.found": "false"}}),
        HEALTHY._replace(broker_settings=LAX).without(ACLS, [KctlError("not authorized")]),
    ],
)
def test_an_authorizer_that_refuses_without_acls_or_is_not_there_or_not_seen(facts: Facts) -> None:
    assert found(facts, "open-without-acls") == []


def test_growth_between_two_looks() -> None:
    before = [LogDir(1, "/d", 100, 50, None, ()), LogDir(1, "/e", 100, None, None, ()), LogDir(2, "/d", 9, 9, None, ())]
    after = [LogDir(1, "/d", 100, 40, None, ()), LogDir(1, "/e", 100, 40, None, ()), LogDir(3, "/d", 9, 9, None, ())]
    assert grown(before, after, 2) == {(1, "/d"): 5}
    assert found(HEALTHY._replace(growth={(1, "/d"): -5.0}), "filling") == [], "it empties"


def test_replicas_in_one_rack() -> None:
    brokers = (broker(1), broker(2, rack="a"), broker(3, rack="b"))
    (finding,) = found(HEALTHY._replace(brokers=brokers, topics=(topic("t", (1, [1, 2], [1, 2])),)), "shared-racks")
    assert finding.items == ("t-0",)
    spread = HEALTHY._replace(brokers=brokers, topics=(topic("t", (1, [1, 2, 3], [1, 2, 3])),))
    assert found(spread, "shared-racks") == [], "three replicas cannot be in more than the two racks there are"


def test_brokers_of_one_host_need_no_racks() -> None:
    brokers = (broker(1, rack=None), broker(2, rack=None))
    assert found(HEALTHY._replace(brokers=brokers), "racks") == []


def test_replicas_on_one_host() -> None:
    brokers = tuple(broker(number)._replace(host=host) for number, host in ((1, "x"), (2, "x"), (3, "y")))
    topics = (topic("t", (1, [1, 2], [1, 2])), topic("spread", (1, [1, 3], [1, 3]), (1, [1, 2, 3], [1, 2, 3])))
    (finding,) = found(HEALTHY._replace(brokers=brokers, topics=topics), "shared-hosts")
    assert (finding.items, finding.severity) == (("t-0",), Severity.WARN)
    one_host = tuple(each._replace(host="x") for each in brokers)
    assert found(HEALTHY._replace(brokers=one_host, topics=topics), "shared-hosts") == [], "there is no other"


def test_throttles_and_moves() -> None:
    setting = Setting("broker", "1", "leader.replication.throttled.rate")
    move = Transfer(TopicPartition("t", 0), (1,), (2,))
    facts = HEALTHY._replace(throttles=Throttles({setting: "5"}, {setting: "5"}, [], []))
    assert found(facts, "throttles")[0].items == ("broker 1 leader.replication.throttled.rate=5",)
    moving = HEALTHY._replace(throttles=Throttles({setting: "5"}, {}, [move], []))
    assert found(moving, "throttles") == []
    assert found(moving, "moves")[0].items == ("t-0",)


WHERE = TopicPartition("orders", 0)


def group(state: str, *lags: PartitionLag) -> GroupLag:
    members = () if state == "Empty" else (Member("m", None, "c", "h"),)
    commits = {lag.where: Commit(lag.committed or 0, "") for lag in lags}
    return GroupLag(Group("g", state, members=members, coordinator=1), commits, list(lags))


@pytest.mark.parametrize(
    ("check", "lags_of_groups", "severity", "told"),
    [
        ("rebalancing", group("PreparingRebalance"), WARN, "group g is rebalancing"),
        ("deserted-groups", group("Empty", PartitionLag(WHERE, 5, 9, 4)), INFO, "with lag and no members"),
        ("deleted-topics", group("Stable", PartitionLag(WHERE, 5, None, None, None, DELETED)), INFO, "that are gone"),
        ("beyond-the-end", group("Stable", PartitionLag(WHERE, 50, 9, 0, None, BEYOND)), WARN, "has committed beyond"),
        ("lost-records", group("Stable", PartitionLag(WHERE, 5, 20, 15)), ERROR, "never read 3 records"),
        ("lost-records", group("Empty", PartitionLag(WHERE, 5, 20, 15)), INFO, "1 group without members stand"),
    ],
)
def test_groups(check: str, lags_of_groups: GroupLag, severity: Severity, told: str) -> None:
    (finding,) = found(HEALTHY._replace(groups={"g": lags_of_groups}, starts={WHERE: 8}), check)
    assert finding.severity == severity
    assert told in finding.summary


def test_a_group_of_any_name_is_one_word_of_the_command_that_mends_it() -> None:
    held = group("PreparingRebalance", PartitionLag(WHERE, 0, 9, 9))
    (finding,) = found(HEALTHY._replace(groups={"x'; id; '": held}), "rebalancing")
    assert shlex.split(finding.fix) == ["kctl", "groups", "rebalance", "x'; id; '", "--explain"]


def test_who_removed_what_was_not_read() -> None:
    """If retention removes nothing, somebody deleted the records."""
    facts = HEALTHY._replace(groups={"g": group("Stable", PartitionLag(WHERE, 5, 20, 15))}, starts={WHERE: 8})
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    for settings, told in (
        (kept, "were deleted (kctl topics truncate"),
        (kept | {"cleanup.policy": "compact", "retention.ms": "1000"}, "were deleted (kctl topics truncate"),
        (kept | {"retention.bytes": "1000"}, "retention has removed, or somebody deleted"),
        (kept | {"retention.ms": "1000"}, "retention has removed, or somebody deleted"),
    ):
        (finding,) = found(facts._replace(topic_settings={"orders": settings}), "lost-records")
        assert told in finding.summary, settings


def test_many_of_a_kind_are_told_as_one() -> None:
    names = [f"g-{number:03}" for number in range(195)]
    lags_of_groups = group("Stable", PartitionLag(WHERE, 5, 20, 15))
    group_lags = {name: lags_of_groups._replace(group=lags_of_groups.group._replace(name=name)) for name in names}
    (finding,) = found(HEALTHY._replace(groups=group_lags, starts={WHERE: 8}), "lost-records")
    assert finding.summary == "195 groups never read records that are gone"
    empty = {name: look._replace(group=look.group._replace(state="Empty")) for name, look in group_lags.items()}
    (finding,) = found(HEALTHY._replace(groups=empty, starts={WHERE: 8}), "lost-records")
    assert (finding.severity, finding.items) == (INFO, tuple(names))
    assert "195 groups without members stand before 585 records that are gone" in finding.summary
    few = dict(list(group_lags.items())[:3])
    assert len(found(HEALTHY._replace(groups=few, starts={WHERE: 8}), "lost-records")) == 3


def test_what_was_not_looked_at_is_not_said_to_be_in_order() -> None:
    facts = HEALTHY.without(DIRECTORIES, [KctlError("no rights")]).without(DIRECTORIES, [])
    assert {check.id for check in not_looked_at(facts, CHECKS)} == {"disks", "filling"}


HELD = Member("m-1", None, "c", "h", assigned=(WHERE,))
LATE = PartitionLag(WHERE, 5, 20, 15, HELD)


def progress(recent: Recent, lag: PartitionLag = LATE, state: str = "Stable") -> Facts:
    """A group of one member; records below offset 8 have waited for long."""
    lags_of_groups = GroupLag(Group("g", state, members=(HELD,), coordinator=1), {}, [lag])
    return HEALTHY._replace(groups={"g": lags_of_groups}, waited_for={WHERE: 8}, recent={"g": recent})


def test_a_member_that_gets_nothing_done() -> None:
    (finding,) = found(progress(Recent()), "stuck")
    assert finding == Finding(
        WARN,
        "c (h) of group g has committed nothing for 5 minutes or longer, with 15 records to read",
        ("orders-0",),
        "kctl groups describe g; kctl groups rebalance g --member m-1",
        "members commit nothing, with records to read",
    )


def test_the_members_of_a_large_group_are_not_searched_for_in_all_partitions() -> None:
    def looking(count: int) -> Callable[[], object]:
        where = [TopicPartition(f"t{number}", 0) for number in range(count)]
        members = tuple(Member(f"m-{each}", None, "c", "h", assigned=(each,)) for each in where)
        lags = [LATE._replace(where=each, member=member) for each, member in zip(where, members, strict=True)]
        look = GroupLag(Group("g", "Stable", members=members), {}, lags)
        facts = HEALTHY._replace(groups={"g": look}, waited_for=dict.fromkeys(where, 8), recent={"g": Recent()})
        assert [row["lag"] for row in member_rows(look.group, lags)] == [15] * count
        assert {topic: [reader.lag for reader in readers] for topic, readers in of_topics(look).items()} == {
            each.topic: [15] for each in where
        }
        return lambda: (list(stuck(facts)), member_rows(look.group, lags), of_topics(look))

    def of_topics(look: GroupLag) -> Readers:
        return sorted_out({"g": look}, {lag.where.topic for lag in look.lags})

    assert is_linear(looking, 50)


@pytest.mark.parametrize(
    "facts",
    [
        progress(Recent(commits=frozenset({WHERE}))),
        progress(Recent(changed=True)),
        progress(Recent(), state="PreparingRebalance"),
        progress(Recent(), LATE._replace(committed=8)),
        progress(Recent(), LATE._replace(committed=None)),
        progress(Recent(), LATE._replace(member=None)),
    ],
    ids=["it commits", "it has just joined", "others hold it up", "records came just now", "no commits", "nobody's"],
)
def test_members_that_may_be_well(facts: Facts) -> None:
    assert found(facts, "stuck") == []


def test_who_may_hold_up_a_rebalance() -> None:
    facts = HEALTHY._replace(groups={"g": group("PreparingRebalance")}, suspects={"g": ("a", "b")})
    assert found(facts, "rebalancing")[0].summary.endswith("1 member); not known to have joined: a, b")


def test_old_clients() -> None:
    formats = {"a": 0, "b": 1, "c": None}
    members = tuple(Member(f"{name}-1", None, name, "h", format=known) for name, known in formats.items())
    facts = HEALTHY._replace(groups={"g": GroupLag(Group("g", "Stable", members=members), {}, [])})
    assert [finding.items for finding in found(facts, "old-clients")] == [("a (h) of g",)]


DELETED_AFTER_A_WEEK = {"orders": {"cleanup.policy": "delete", "retention.ms": "604800000"}}


@pytest.mark.parametrize(("committed", "told"), [(5, "7 records"), (11, "1 record"), (12, None)])
def test_a_group_that_retention_is_about_to_overtake(committed: int, told: str | None) -> None:
    facts = HEALTHY._replace(
        groups={"g": group("Stable", PartitionLag(WHERE, committed, 20, 20 - committed))},
        starts={WHERE: 5},
        soon_gone={WHERE: 12},
        topic_settings=DELETED_AFTER_A_WEEK,
    )
    expected = [f"group g has 1d18h at most to read {told} before retention removes them"] if told else []
    assert [finding.summary for finding in found(facts, "overtaken")] == expected


def test_what_is_gone_already_is_not_about_to_go() -> None:
    facts = HEALTHY._replace(
        groups={"g": group("Stable", PartitionLag(WHERE, 3, 20, 17))},
        starts={WHERE: 12},
        soon_gone={WHERE: 12},
        topic_settings=DELETED_AFTER_A_WEEK,
    )
    assert found(facts, "overtaken") == []


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5"}, 5),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5"}, 5),
        ({"cleanup.policy": "compact", "retention.ms": "5"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, None),
        ({}, None),
    ],
)
def test_what_a_topic_keeps(settings: dict[str, str | None], kept: int | None) -> None:
    assert retention_ms(settings) == kept


def test_a_clock_that_is_a_little_ahead_is_no_finding() -> None:
    assert found(HEALTHY._replace(newest={WHERE: 60_000}), "clocks") == []


def test_a_stable_group_that_reads_is_no_finding() -> None:
    facts = HEALTHY._replace(groups={"g": group("Stable", PartitionLag(WHERE, 8, 20, 12))}, starts={WHERE: 8})
    assert look(facts, CHECKS) == []


def test_the_worst_comes_first() -> None:
    facts = HEALTHY._replace(topics=(topic("t", (-1, [1], [1])), topic("u", (2, [1, 2], [1, 2]))), controller_id=-1)
    severities = [finding.severity for _, finding in look(facts, CHECKS)]
    assert severities == sorted(severities, reverse=True)
    assert {ERROR, INFO} <= set(severities)


@pytest.mark.parametrize(
    ("transaction", "now_ms"),
    [
        (ONGOING, 200_000),
        (DECIDED._replace(decided_ms=395_000), 400_000),
        (DECIDED, 400_000),
    ],
)
def test_transactions_that_take_their_time(transaction: Lingering, now_ms: int) -> None:
    """A decided one is never open for long, and stuck only if it has been decided for a while."""
    facts = HEALTHY._replace(transactions=(transaction,), now_ms=now_ms)
    assert found(facts, "long-transactions") == found(facts, "stuck-transactions") == []
