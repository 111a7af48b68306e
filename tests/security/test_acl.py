"""Decisions by ACLs: those that real Kafka made, and the corners of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest

from kafkad.security.access_log import AccessLog
from kafkad.security.acl import Acl, AclAuthorizer, AclIdentity, Pattern, Rules, is_host, plain_host
from kafkad.security.authorizer import CLUSTER_NAME, Operation, PatternType, PermissionType, Principal, ResourceType
from kafkad.turns import at_once

CASES = Path(__file__).parents[1] / "golden" / "security" / "decisions.jsonl"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
CAROL = Principal("User", "carol")


def authorizer(*super_users: str, allow_if_no_acl: bool = False) -> AclAuthorizer:
    return AclAuthorizer(super_users, allow_if_no_acl, AccessLog(lambda: 0.0, lambda at, action: None))


def put(
    authorizer: AclAuthorizer, name: str, operation: Operation, permission: PermissionType = ALLOW, **other: Any
) -> None:
    pattern = Pattern(other.get("resource", TOPIC), name, other.get("type", LITERAL))
    acl = Acl(other.get("principal", "User:carol"), other.get("host", "*"), operation, permission)
    authorizer.index.put(pattern, at_once(Rules.of((acl,))))
    authorizer.changed()


def with_acls(rows: list[list[str]]) -> AclIdentity:
    found: dict[Pattern, tuple[Acl, ...]] = {}
    for kind, pattern_type, name, principal, host, operation, permission in rows:
        pattern = Pattern(ResourceType[kind.upper()], name, PatternType[pattern_type.upper()])
        acl = Acl(principal, host, Operation[operation.upper()], PermissionType[permission.upper()])
        found[pattern] = (*found.get(pattern, ()), acl)
    made = authorizer()
    at_once(made.index.replace(found.items()))
    return made.identity(CAROL, "127.0.0.1")


ON_TOPIC = ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"]
ON_CLUSTER = ["create", "alter", "describe", "cluster_action", "describe_configs", "alter_configs", "idempotent_write"]


def words(carol: AclIdentity, operations: list[str], resource: ResourceType, name: str) -> str:
    return "+".join(word for word in operations if carol.allows(Operation[word.upper()], resource, name))


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c["what"]) for c in map(json.loads, CASES.read_text().splitlines())]
)
def test_decisions_are_kafkas(case: dict[str, Any]) -> None:
    carol = with_acls(case["acls"])
    on_topic = words(carol, ON_TOPIC, TOPIC, "t1")
    assert (on_topic if carol.allows(DESCRIBE, TOPIC, "t1") else "unset") == case["metadata_of_t1"]["topic_operations"]
    missing = case["metadata_of_missing"]
    assert carol.allows(DESCRIBE, TOPIC, "nx-topic") == (missing["error_code"] != 29)
    on_cluster = words(carol, ON_CLUSTER, CLUSTER, CLUSTER_NAME)
    may_see = carol.allows(DESCRIBE, CLUSTER, CLUSTER_NAME)
    assert (on_cluster if may_see else "none") == case["cluster_operations"]
    codes = case["error_codes"]
    idempotent = carol.allows(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME) or carol.writes_any(TOPIC)
    assert idempotent == (31 not in codes["InitProducerId 4 idempotent"])
    for request, operation, resource, name, refusal in (
        ("Produce 9", WRITE, TOPIC, "t1", 29),
        ("Fetch 12 (name)", READ, TOPIC, "t1", 29),
        ("OffsetCommit 8", READ, ResourceType.GROUP, "g1", 30),
        ("OffsetFetch 5", DESCRIBE, ResourceType.GROUP, "g1", 30),
        ("InitProducerId 4 transactional", WRITE, ResourceType.TRANSACTIONAL_ID, "x1", 53),
        ("DeleteRecords 2", Operation.DELETE, TOPIC, "t1", 29),
        ("DescribeConfigs 4 type 4 '1'", Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME, 31),
    ):
        assert carol.allows(operation, resource, name) == (refusal not in codes[request]), request


def test_super_users_may_do_everything_whatever_is_denied() -> None:
    made = authorizer("User:CN=a,OU=b")
    put(made, "t", READ, DENY, principal="User:*")
    assert made.identity(Principal("User", "CN=a,OU=b"), "::1").allows(READ, TOPIC, "t")
    assert made.identity(Principal("User", "CN=a,OU=b"), "::1").writes_any(TOPIC)
    assert not made.identity(Principal("Group", "CN=a,OU=b"), "::1").allows(READ, TOPIC, "t")


def test_without_any_acl_about_it_a_setting_decides() -> None:
    for allow in (False, True):
        made = authorizer(allow_if_no_acl=allow)
        carol = made.identity(CAROL, "10.0.0.1")
        assert carol.allows(READ, TOPIC, "t") is allow
        put(made, "t", READ, principal="User:dave")
        assert not carol.allows(READ, TOPIC, "t")
        assert carol.allows(READ, TOPIC, "u") is allow
        put(made, "u", WRITE, principal="User:dave", type=PREFIXED)
        assert not carol.allows(READ, TOPIC, "u2")
        assert carol.allows(READ, ResourceType.GROUP, "u2") is allow


def test_an_address_is_the_same_however_it_is_written() -> None:
    made = authorizer()
    put(made, "t", READ, host="0:0:0:0:0:0:0:1")
    assert made.identity(CAROL, "::1").allows(READ, TOPIC, "t")
    put(made, "t", READ, host="10.1.2.3")
    assert made.identity(CAROL, "::ffff:10.1.2.3").allows(READ, TOPIC, "t")
    assert not made.identity(CAROL, "10.1.2.4").allows(READ, TOPIC, "t")
    assert plain_host("no.address") == "no.address"
    assert [is_host(text) for text in ("*", "::1", "1.2.3.4", "1.2.3.0/24", "", "here")] == [True] * 3 + [False] * 3


def test_what_cannot_be_read_allows_nobody_and_denies_nothing_else() -> None:
    made = authorizer("User:root")
    put(made, "*", Operation.ALL)
    carol, root = made.identity(CAROL, "::1"), made.identity(Principal("User", "root"), "::1")
    for pattern, name in ((Pattern(TOPIC, "t"), "t"), (Pattern(TOPIC, "or", PREFIXED), "orders")):
        made.index.put(pattern, at_once(Rules.of(None)))
        made.changed()
        assert not carol.allows(READ, TOPIC, name)
        assert root.allows(READ, TOPIC, name)
        assert carol.allows(READ, TOPIC, "u")
        made.index.put(pattern, at_once(Rules.of(())))
        made.changed()
        assert carol.allows(READ, TOPIC, name)


def test_any_topic() -> None:
    made = authorizer()
    carol = made.identity(CAROL, "::1")
    assert not carol.writes_any(TOPIC)
    put(made, "ord", WRITE, type=PREFIXED)
    assert carol.writes_any(TOPIC)
    put(made, "o", WRITE, DENY, type=PREFIXED)
    assert not carol.writes_any(TOPIC)
    put(made, "x", WRITE)
    assert carol.writes_any(TOPIC)
    put(made, "*", WRITE, DENY, principal="User:*")
    assert not carol.writes_any(TOPIC)


def test_any_topic_is_the_one_of_the_few_that_may_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others there are; and it is not asked again behind ten thousand names."""
    made = authorizer()
    for number in range(1_000):
        put(made, f"t{number}", READ)
        put(made, f"w{number}", WRITE, principal="User:dave")
    asked: list[Rules] = []
    for method in ("allow", "deny"):
        right = getattr(Rules, method)
        monkeypatch.setattr(Rules, method, lambda rules, *what, right=right: asked.append(rules) or right(rules, *what))
    carol = made.identity(CAROL, "::1")
    assert not carol.writes_any(TOPIC)
    assert not asked
    put(made, "t7", WRITE)
    assert carol.writes_any(TOPIC)
    put(made, "t7", READ)
    assert not carol.writes_any(TOPIC)
    put(made, "x", WRITE)
    made.index.put(Pattern(TOPIC, "x"), None)
    made.changed()
    assert not carol.writes_any(TOPIC)
    monkeypatch.setattr(made.index, "writes_any", None)
    for number in range(10_001):
        carol.allows(READ, TOPIC, f"u{number}")
    assert not carol.writes_any(TOPIC)


@pytest.mark.parametrize("seed", range(30))
def test_any_topic_is_what_a_look_at_each_finds(seed: int) -> None:
    random = Random(seed)
    made = authorizer()
    carol = made.identity(CAROL, "::1")
    patterns = [
        Pattern(TOPIC, "*"),
        *(Pattern(TOPIC, n, t) for n in ("a", "ab", "b", "ba") for t in (LITERAL, PREFIXED)),
    ]
    known: dict[Pattern, tuple[Acl, ...]] = {}
    for _ in range(40):
        pattern = random.choice(patterns)
        acls = [
            Acl(random.choice(("User:carol", "User:*", "User:dave")), "*", *each)
            for each in random.choices([(WRITE, ALLOW), (WRITE, DENY), (READ, ALLOW), (Operation.ALL, ALLOW)], k=2)
        ]
        known[pattern] = tuple(acls) if random.random() < 0.7 else ()
        made.index.put(pattern, at_once(Rules.of(known[pattern])))
        made.changed()
        some = [pattern.name for pattern, acls in known.items() if acls and pattern.type is LITERAL]
        some += [f"{pattern.name}-" for pattern, acls in known.items() if acls and pattern.type is PREFIXED]
        assert carol.writes_any(TOPIC) == any(carol.allows(WRITE, TOPIC, name) for name in some)


def test_connections_of_one_user_and_address_share_what_was_decided_until_acls_change() -> None:
    made = authorizer()
    carol = made.identity(CAROL, "10.0.0.1")
    assert made.identity(CAROL, "10.0.0.1") is carol
    assert made.identity(CAROL, "10.0.0.2") is not carol
    assert made.identity(Principal("User", "dave"), "10.0.0.1") is not carol
    put(made, "t", READ)
    assert carol.allows(READ, TOPIC, "t")
    made.index.put(Pattern(TOPIC, "t"), None)
    assert carol.allows(READ, TOPIC, "t"), "what was decided is not decided again"
    made.changed()
    assert not carol.allows(READ, TOPIC, "t")


def test_made_up_names_do_not_fill_the_memory() -> None:
    carol = authorizer().identity(CAROL, "::1")
    for number in range(30_000):
        carol.allows(READ, TOPIC, f"t{number}")
    assert len(carol._decided) <= 10_000


def test_made_up_names_at_many_addresses_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.security.acl._MOST_OF_ALL", 1_000)
    monkeypatch.setattr("kafkad.security.acl._BETWEEN", 100)
    made = authorizer()
    put(made, "t", READ)
    many = [made.identity(CAROL, f"10.0.0.{number}") for number in range(100)]
    for carol in many:
        assert carol.allows(READ, TOPIC, "t")
        assert not carol.writes_any(TOPIC)
        for number in range(48):
            carol.allows(READ, TOPIC, f"t{number}")
        assert sum(each.remembered for each in many) < 1_100
    assert (many[0].remembered, many[-1].remembered) == (0, 49)
    assert many[0].allows(READ, TOPIC, "t"), "what was dropped is decided again"


def test_rights_are_the_same_when_decisions_are_dropped_for_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that asks for thousands in turns begins again when its rights are others: it would never end."""
    monkeypatch.setattr("kafkad.security.acl._MOST_OF_ALL", 10)
    monkeypatch.setattr("kafkad.security.acl._BETWEEN", 1)
    made = authorizer()
    carol, dave = made.identity(CAROL, "10.0.0.1"), made.identity(Principal("User", "dave"), "10.0.0.2")
    silent = made.identity(CAROL, "10.0.0.3")
    before = carol.era, dave.era
    carol.allows(READ, TOPIC, "t")
    for number in range(10):
        dave.allows(READ, TOPIC, f"t{number}")
    assert (carol.remembered, dave.remembered) == (0, 10)
    assert (carol.era, dave.era, silent.era) == (*before, 0)
    made.changed()
    assert (carol.era, dave.era) != before


def test_long_names_are_not_remembered() -> None:
    """Anybody may ask for 32 KB of them at a time."""
    made = authorizer()
    carol = made.identity(CAROL, "::1")
    put(made, "t" * 30_000, READ)
    assert carol.allows(READ, TOPIC, "t" * 30_000)
    assert not carol.allows(READ, TOPIC, "u" * 30_000)
    assert not carol._decided


def test_the_ten_thousandth_prefix_costs_as_much_as_the_first() -> None:
    made = authorizer()

    def spent(first: int, count: int) -> float:
        begin = process_time()
        for number in range(first, first + count):
            rules = at_once(Rules.of((Acl("User:x", "*", READ, ALLOW),)))
            made.index.put(Pattern(TOPIC, f"topic-{number:06d}", PREFIXED), rules)
        return (process_time() - begin) / count

    first = min(spent(at, 200) for at in range(0, 600, 200))
    spent(600, 9_400)
    assert min(spent(at, 200) for at in range(10_000, 11_000, 200)) < 5 * first
    assert made.index._by_type[TOPIC].lengths == (12,)
    for number in range(11_000):
        made.index.put(Pattern(TOPIC, f"topic-{number:06d}", PREFIXED), None)
    assert made.index._by_type[TOPIC].lengths == ()


def test_a_decision_over_thousands_of_acls_takes_a_microsecond_or_two() -> None:
    made = authorizer()
    acls = [(Pattern(TOPIC, f"topic-{n}"), (Acl("User:carol", "*", READ, ALLOW),)) for n in range(1_500)]
    acls += [
        (Pattern(TOPIC, f"team{n % 7}-{n}"[: 6 + n % 4], PREFIXED), (Acl("User:x", "*", READ, DENY),))
        for n in range(500)
    ]
    at_once(made.index.replace(acls))
    whom = made.identity(CAROL, "::1")._whom
    names = [f"topic-{n}" for n in range(1_000)]

    def spent() -> float:
        begin = process_time()
        for name in names:
            made.index.allows(whom, READ, TOPIC, name)
        return (process_time() - begin) / len(names)

    assert min(spent() for _ in range(5)) < 10e-6
