"""Checks of brokers, their disks and what they lead. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from kctl.acls.bindings import ANYWHERE, CLUSTER_NAME, EVERYBODY, removing, why_never
from kctl.brokers.facts import NO_ACCESS, NO_ANSWER, OTHER_CLUSTER
from kctl.doctor.facts import ACLS, BROKER_SETTINGS, DIRECTORIES, HEALTH, OPEN_WITHOUT_ACL, THROTTLES, Facts
from kctl.doctor.finding import Check, Finding, Severity
from kctl.doctor.topics import away
from kctl.texts.output import counted, duration_text, size_text

_FULL_WARN, _FULL_ERROR = 0.15, 0.05
_CROWDED = 1.25
"""A broker that leads this many times its share is worth a word."""
_DAY_MS = 86_400_000
_WARN_MS, _ERROR_MS = 30 * _DAY_MS, 7 * _DAY_MS
"""How long a certificate is still valid."""
_FULL_IN_DAYS = 7
_RENEW = (
    "write the new one over the broker's ssl.keystore.location: kafkad reads it within a minute, Kafka at a restart; "
    "another authority has to be in all truststores before"
)
_HARMFUL = {"All", "Write", "Delete", "Alter", "AlterConfigs"}
_FEW = 8
"""Below so many partitions a broker, shares say nothing."""


_UNASKED = {
    NO_ANSWER: ("does not answer", "registered brokers do not answer"),
    NO_ACCESS: ("TLS or the login fails", "registered brokers cannot be logged in to"),
    OTHER_CLUSTER: ("another cluster's broker answers", "addresses of registered brokers are of another cluster"),
}


def brokers_down(facts: Facts) -> Iterator[Finding]:
    down = facts.down
    if down:
        names = ", ".join(str(broker.id) for broker in down)
        held = sum(broker.partitions for broker in down)
        summary = f"broker {names} is down and holds replicas of {counted(held, 'partition')}"
        yield Finding(Severity.ERROR, summary, tuple(f"broker/{b.id}" for b in down), f"start broker {names}")
    for broker in facts.brokers:
        if broker.state not in _UNASKED:
            continue
        what, plural = _UNASKED[broker.state]
        summary = f"broker {broker.id} is registered, and {what} at {broker.host}:{broker.port}"
        fix = "kctl contexts test says why; see advertised.listeners of the broker if that is a wrong address"
        yield Finding(Severity.ERROR, summary, (f"broker/{broker.id}",), fix, plural)


def no_controller(facts: Facts) -> Iterator[Finding]:
    if facts.controller_id < 0:
        yield Finding(Severity.ERROR, "no broker is the controller: nothing can be created, moved or elected")


def without_zookeeper(facts: Facts) -> Iterator[Finding]:
    """kafkad brokers with an http.listener; no other broker tells."""
    lost = {broker: report.cut_off for broker, report in facts.health.items() if report.cut_off is not None}
    if lost:
        names = ", ".join(map(str, lost))
        summary = f"brokers without a connection to ZooKeeper: {names}"
        if facts.standstill:
            summary += "; nothing is elected or changed until it is back"
        why = tuple(dict.fromkeys(lost.values()))
        yield Finding(Severity.ERROR, summary, why, "start ZooKeeper, or mend the way to it")


def refused_metadata(facts: Facts) -> Iterator[Finding]:
    """kafkad brokers with an http.listener; no other broker tells. Those of one host tell of the same store."""
    for why in dict.fromkeys(report.refusing for report in facts.health.values()):
        if why is not None:
            fix = "make room on that disk, or mend it; then the next change is taken"
            yield Finding(Severity.ERROR, why, (), fix)


_MAKE_ROOM = "kctl topics list --sort -size_bytes shows what takes the room; less retention, or kctl topics truncate"


def directories(facts: Facts) -> Iterator[Finding]:
    for directory in facts.directories:
        name = f"{directory.path} of broker {directory.broker}"
        if directory.error is not None:
            yield Finding(
                Severity.ERROR,
                f"log directory {name} is offline ({directory.error.code})",
                (name,),
                f"mend the disk, then restart broker {directory.broker}; "
                f"kctl brokers log-dirs {directory.broker} shows whether it is back",
                "log directories are offline",
            )
        elif directory.total and directory.free is not None and directory.free < _FULL_WARN * directory.total:
            severity = Severity.ERROR if directory.free < _FULL_ERROR * directory.total else Severity.WARN
            free = f"{directory.free / directory.total:.0%} free ({size_text(directory.free)})"
            yield Finding(severity, f"the disk of {name} has {free}", (name,), _MAKE_ROOM, "disks are nearly full")


def damaged_logs(facts: Facts) -> Iterator[Finding]:
    """Damaged logs of kafkad brokers with an http.listener; no other broker tells."""
    for broker, report in facts.health.items():
        for place in report.damaged:
            partition = place.partition(": ")[0]
            fix = f"log of broker {broker}; kctl check-log DIRECTORY there"
            yield Finding(Severity.ERROR, f"a log is damaged: {place}", (partition,), fix, "logs are damaged")


def exposed_listeners(facts: Facts) -> Iterator[Finding]:
    """Those of kafkad brokers with an http.listener; no other broker tells."""
    for broker, report in facts.health.items():
        for listener in report.exposed:
            what, _, fix = listener.partition("; ")
            yield Finding(Severity.WARN, what, (f"broker/{broker}",), fix, "listeners are open to others")


def filling(facts: Facts) -> Iterator[Finding]:
    """Only of directories that were looked at twice: kctl doctor --sample."""
    for directory in facts.directories:
        rate = facts.growth.get((directory.broker, directory.path), 0)
        if rate <= 0 or directory.free is None:
            continue
        days = directory.free / rate / 86_400
        if days < _FULL_IN_DAYS:
            name = f"{directory.path} of broker {directory.broker}"
            severity = Severity.ERROR if days < 1 else Severity.WARN
            summary = f"at {size_text(int(rate))}/s the disk of {name} is full in {duration_text(int(days * _DAY_MS))}"
            yield Finding(severity, summary, (name,), _MAKE_ROOM)


def open_to_all(facts: Facts) -> Iterator[Finding]:
    wide = tuple(
        str(acl)
        for acl in facts.acls
        if acl.permission == "allow"
        and acl.principal == EVERYBODY
        and acl.host == ANYWHERE
        and acl.operation in _HARMFUL
        and acl.resource.name in ("*", CLUSTER_NAME)
    )
    if wide:
        yield Finding(Severity.WARN, "ACLs let everybody change everything of a kind", wide, "kctl acls list")


def open_without_acls(facts: Facts) -> Iterator[Finding]:
    """Kafka does not tell the value, which may well be false: that is no warning."""
    if ACLS in facts.unseen:
        return
    told = {
        broker: own[OPEN_WITHOUT_ACL]
        for broker, own in facts.broker_settings.items()
        if own.get("authorizer.class.name") and OPEN_WITHOUT_ACL in own
    }
    severity, who = (
        (Severity.INFO, "everybody may do what no ACL is about")
        if facts.acls
        else (Severity.WARN, "there are no ACLs, so that everybody may do everything")
    )
    fix = f"kctl acls add, where one is missing; then take {OPEN_WITHOUT_ACL} out on the brokers"
    if lax := tuple(f"broker/{broker}" for broker, value in told.items() if (value or "").lower() == "true"):
        yield Finding(severity, f"{who}: {OPEN_WITHOUT_ACL} is true", lax, fix)
    if hidden := tuple(f"broker/{broker}" for broker, value in told.items() if value is None):
        summary = f"{OPEN_WITHOUT_ACL} is set, and brokers do not tell to what; if it is true, {who}"
        yield Finding(Severity.INFO, summary, hidden, fix)


def never_matching(facts: Facts) -> Iterator[Finding]:
    reasons = [(acl, why_never(acl)) for acl in facts.acls]
    dead = [acl for acl, why in reasons if why]
    if dead:
        told = tuple(f"{acl}: {why}" for acl, why in reasons if why)
        summary = f"{counted(len(dead), 'ACL')} that can never match: a deny among them refuses nobody"
        others = [acl for acl, why in reasons if not why]
        yield Finding(Severity.WARN, summary, told, "; ".join(removing(dead, others)[:1]))


def leaders(facts: Facts) -> Iterator[Finding]:
    """Elections bring leaders back to where they are preferred; only what they can mend is a finding."""
    alive = facts.alive
    led = sum(broker.leaders for broker in alive)
    if len(alive) < 2 or led < _FEW * len(alive):
        return
    for broker in alive:
        if broker.leaders > _CROWDED * led / len(alive):
            share = f"broker {broker.id} leads {broker.leaders / led:.0%} of partitions"
            fix = "kctl partitions plan --balance leaders"
            if away(facts):
                fix = f"kctl partitions elect --preferred --all, or {fix}"
            yield Finding(Severity.WARN, share, (f"broker/{broker.id}",), fix)


def racks(facts: Facts) -> Iterator[Finding]:
    """Where all brokers are of one host, and none has a rack, there is nothing to spread replicas over."""
    alive = facts.alive
    without = [broker for broker in alive if broker.rack is None]
    if without and len(without) < len(alive):
        names = tuple(f"broker/{broker.id}" for broker in without)
        yield Finding(
            Severity.WARN,
            f"{counted(len(without), 'broker')} without a rack, others have one",
            names,
            "set broker.rack: a topic cannot be spread over racks that are not known",
        )
    elif without and len({broker.host for broker in alive}) > 1:
        yield Finding(Severity.INFO, "no broker has a rack", (), "set broker.rack where brokers share power or network")


def releases(facts: Facts) -> Iterator[Finding]:
    served: dict[tuple[tuple[int, tuple[int, int]], ...], list[int]] = {}
    for broker, versions in facts.versions.items():
        served.setdefault(tuple(sorted(versions.items())), []).append(broker)
    if len(served) > 1:
        groups = " / ".join(",".join(map(str, brokers)) for brokers in served.values())
        summary = f"brokers serve different versions of the protocol: {groups}"
        yield Finding(Severity.WARN, summary, (), "kctl brokers list; finish the upgrade")


def left_throttles(facts: Facts) -> Iterator[Finding]:
    if facts.throttles is None or not facts.throttles.left:
        return
    left = tuple(f"{setting}={value}" for setting, value in facts.throttles.left.items())
    summary = f"{counted(len(left), 'throttle')} left over that no move needs"
    yield Finding(Severity.WARN, summary, left, "kctl partitions throttle clear")


def moves(facts: Facts) -> Iterator[Finding]:
    if facts.throttles is not None and facts.throttles.transfers:
        names = tuple(str(transfer.partition) for transfer in facts.throttles.transfers)
        yield Finding(Severity.INFO, f"{counted(len(names), 'partition')} being moved", names, "kctl partitions status")


def settings(facts: Facts) -> Iterator[Finding]:
    creating = [b for b, own in facts.broker_settings.items() if own.get("auto.create.topics.enable") == "true"]
    if creating:
        summary = "topics are created by whoever misspells one (auto.create.topics.enable)"
        yield Finding(Severity.INFO, summary, tuple(f"broker/{b}" for b in creating), "set it to false on the brokers")
    unclean = [b for b, own in facts.broker_settings.items() if own.get("unclean.leader.election.enable") == "true"]
    if unclean:
        summary = "a replica that was not in sync may become leader, and records are lost"
        fix = "kctl configs set brokers unclean.leader.election.enable=false"
        yield Finding(Severity.WARN, summary, tuple(f"broker/{b}" for b in unclean), fix)


def certificate(facts: Facts) -> Iterator[Finding]:
    """Brokers may show the same one, or each its own."""
    same: dict[tuple[Severity, str], list[int]] = {}
    for broker, until_ms in sorted(facts.certificate_until_ms.items(), key=itemgetter(1)):
        left = max(until_ms - facts.now_ms, 0)
        if left < _WARN_MS:
            severity = Severity.ERROR if left < _ERROR_MS else Severity.WARN
            same.setdefault((severity, duration_text(left)), []).append(broker)
    for (severity, text), brokers in same.items():
        summary = f"the certificate of broker {', '.join(map(str, brokers))} expires in {text}"
        items = tuple(f"broker/{broker}" for broker in brokers)
        yield Finding(severity, summary, items, _RENEW, "certificates of brokers expire soon")


CHECKS = (
    Check("brokers-down", "Brokers that hold replicas and are not there, or do not answer.", brokers_down),
    Check("controller", "A cluster without a controller.", no_controller),
    Check(
        "zookeeper",
        "kafkad brokers with an http.listener that have no connection to ZooKeeper.",
        without_zookeeper,
        (BROKER_SETTINGS, HEALTH),
    ),
    Check(
        "metadata",
        "kafkad brokers with an http.listener whose disk takes no changes of metadata.",
        refused_metadata,
        (BROKER_SETTINGS, HEALTH),
    ),
    Check("disks", "Log directories that are offline or nearly full.", directories, (DIRECTORIES,)),
    Check("damage", "Damaged logs of kafkad brokers with an http.listener.", damaged_logs, (BROKER_SETTINGS, HEALTH)),
    Check(
        "exposed",
        "Listeners that other machines reach without TLS, or without a token, of kafkad brokers with an http.listener.",
        exposed_listeners,
        (BROKER_SETTINGS, HEALTH),
    ),
    Check("filling", "Disks that will soon be full, with --sample.", filling, (DIRECTORIES,)),
    Check("leaders", "Brokers that lead far more partitions than others.", leaders, changes=True),
    Check("racks", "Brokers without a rack.", racks),
    Check("versions", "Brokers of different releases.", releases),
    Check("throttles", "Throttles that no move needs any more.", left_throttles, (THROTTLES,), changes=True),
    Check("moves", "Replicas that are being moved.", moves, (THROTTLES,)),
    Check(
        "settings",
        "Settings of brokers that lose data or make topics by mistake.",
        settings,
        (BROKER_SETTINGS,),
        changes=True,
    ),
    Check("acls", "ACLs that let everybody change everything.", open_to_all, (ACLS,)),
    Check(
        "open-without-acls",
        "An authorizer that lets everybody do what no ACL is about.",
        open_without_acls,
        (BROKER_SETTINGS, ACLS),
        changes=True,
    ),
    Check("unmatched-acls", "ACLs that can never match anything.", never_matching, (ACLS,), changes=True),
    Check("certificate", "TLS certificates of brokers that expire soon.", certificate),
)
