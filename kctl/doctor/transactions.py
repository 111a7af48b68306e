"""Checks of transactions. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.doctor.facts import TRANSACTIONS, Facts
from kctl.doctor.finding import Check, Finding, Severity
from kctl.texts.output import counted, duration_text
from kctl.texts.spelling import command

LONG_MS = 5 * 60_000
"""Most transactions take less than a second; those of jobs with checkpoints take minutes."""
LATE_MS = 60_000
"""Brokers look for transactions beyond their time-out every 10 seconds."""
STUCK_MS = 10_000
"""Markers are written within milliseconds."""


def open_for_long(facts: Facts) -> Iterator[Finding]:
    for one, _, _ in facts.transactions:
        age = facts.now_ms - one.start_ms
        is_late = age > one.timeout_ms + LATE_MS
        if one.is_decided or not (is_late or age > LONG_MS):
            continue
        who = f"the transaction of {one.transactional_id} is open since {duration_text(age)}"
        limit = duration_text(one.timeout_ms)
        if is_late:
            summary = f"{who}: its coordinator should have aborted it after {limit}"
        else:
            summary = f"{who} (its time-out is {limit}): readers of {counted(len(one.partitions), 'partition')} wait"
        fix = f"kctl {command('txns end', one.transactional_id)}"
        severity = Severity.ERROR if is_late else Severity.WARN
        plural = "transactions are beyond their time-out" if is_late else "transactions are open for long"
        yield Finding(severity, summary, (one.transactional_id,), fix, plural)


def stuck(facts: Facts) -> Iterator[Finding]:
    """Where the time of the decision is not known, it is certain only once the transaction is beyond its time-out."""
    for one, decided_ms, waits in facts.transactions:
        since = one.start_ms + one.timeout_ms + LATE_MS if decided_ms is None else decided_ms
        waiting = facts.now_ms - since
        if not one.is_decided or waiting <= STUCK_MS:
            continue
        word = "commit" if one.state == "PrepareCommit" else "abort"
        summary = f"the {word} of {one.transactional_id} is stuck since {duration_text(waiting)}"
        if waits:
            summary += f": it waits for {waits[0]}{f' and {len(waits) - 1:,} more' if len(waits) > 1 else ''}"
        fix = f"kctl {command('txns describe', one.transactional_id)}; it ends when these partitions have a leader"
        yield Finding(Severity.ERROR, summary, (one.transactional_id,), fix, "decided transactions are stuck")


def hanging(facts: Facts) -> Iterator[Finding]:
    for row in facts.hanging:
        where = f"{row['topic']}-{row['partition']}"
        summary = f"a transaction hangs on {where} since {duration_text(row['age_ms'])}: {row['why']}"
        yield Finding(Severity.ERROR, summary, (where,), row["fix"], "transactions hang (kctl txns hanging)")


CHECKS = (
    Check("long-transactions", "Transactions that are open for long, or too long.", open_for_long, (TRANSACTIONS,)),
    Check("stuck-transactions", "Commits and aborts that do not come to an end.", stuck, (TRANSACTIONS,)),
    Check("hanging-transactions", "Transactions that nobody will end.", hanging, (TRANSACTIONS,)),
)
