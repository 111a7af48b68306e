"""What logins and rights cost: kafkad with SASL and 2,000 ACLs beside kafkad without, under the load of `make bench`.

    make bench-rights ARGS="[--reps 9] [--only TEXT]"

Each work is measured in turns with both, and the figure is the median of what one took of the other in the same turn,
of CPU for each request and of throughput. Exits 1 when it is more than 3 %. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.measured import LoadGenerator, cpu_seconds, prepare
from tests.bench.sidebyside import KAFKAD, WORK, Broker, Work, create_topics, start_kafkad
from tests.clients.asker import Asker
from tests.oracle import kafka as oracle

MOST_PERCENT = 3.0
ACLS = 2_000
AT_ONCE = 500
TOPIC, GROUP, LITERAL, PREFIXED, READ, WRITE, DENY, ALLOW = 2, 3, 3, 4, 3, 4, 2, 3
GUARDED = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="pw";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Side(NamedTuple):
    """A broker, and the port at which the load comes."""

    broker: Broker
    port: int
    options: dict[str, int]


class Taken(NamedTuple):
    cpu_us: float
    """For each request."""
    requests_s: float


def guarded(directory: Path, stack: contextlib.ExitStack) -> Side:
    plain, sasl = oracle.free_port(), oracle.free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}"
    settings = GUARDED | {"listeners": listeners, "log.dirs": str(directory)}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    server = oracle.Server([sys.executable, "-m", "kafkad", *words], plain)
    stack.callback(server.stop)
    server.wait_ready()
    return Side(Broker("guarded", plain, server.pid), sasl, {"plain": plain, "sasl": 1})


def grant(broker: Broker) -> None:
    """What alice needs, among ACLs of others: for names, for the beginnings of names, and denials."""
    asker = Asker(broker.port)
    acls = [_acl(TOPIC, topic, "alice", READ) for topic in ("a", "f", "b__p6")]
    acls += [_acl(TOPIC, topic, "alice", WRITE) for topic in ("a", "f", "b__p6")]
    for number in range(ACLS - len(acls)):
        prefix = PREFIXED if number % 3 else LITERAL
        kind, permission = (TOPIC, ALLOW) if number % 5 else (GROUP, DENY)
        acls.append(_acl(kind, f"team-{number % 400}-{number}", f"user{number}", READ, prefix, permission))
    for start in range(0, ACLS, AT_ONCE):
        answer = asker.ask("CreateAcls", 3, {"creations": acls[start : start + AT_ONCE]})
        assert not any(result.error_code for result in answer.results), answer.results[0]
    asker.client.close()


def _acl(
    kind: int, name: str, user: str, operation: int, pattern: int = LITERAL, permission: int = ALLOW
) -> dict[str, int | str]:
    where = {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern}
    return {**where, "principal": f"User:{user}", "host": "*", "operation": operation, "permission_type": permission}


def measure(generator: LoadGenerator, side: Side, work: Work) -> Taken:
    os.sync()
    time.sleep(0.1)
    before = cpu_seconds(side.broker.pid)
    load = generator.run(work.mode, side.port, topic=work.topic, **side.options, **work.options)
    return Taken((cpu_seconds(side.broker.pid) - before) / load.requests * 1e6, load.requests_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--only", default="", help="only the work whose name holds this text")
    options = parser.parse_args()
    prepare()
    missed = 0
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rights-")))
        open_to_all = start_kafkad(KAFKAD, scratch / "open", stack)
        sides = [Side(open_to_all, open_to_all.port, {}), guarded(scratch / "guarded", stack)]
        generator = LoadGenerator(scratch)
        for side in sides:
            create_topics(side.broker)
            if side.options:
                grant(side.broker)
            generator.run("produce", side.port, topic="f", recs=16, msg=1000, n=8000, **side.options)
        print(f"{'work':32} {'CPU µs':>8} {'guarded':>8} {'req/s':>9} {'guarded':>9}")
        for work in (item for item in WORK if options.only in item.name):
            turns = []
            for number in range(options.reps + 1):
                order = sides if number % 2 else sides[::-1]
                taken = {side.broker.name: measure(generator, side, work) for side in order}
                turns.append((taken["kafkad"], taken["guarded"]))
            turns = turns[1:]  # the first one warms up
            more = 100 * (statistics.median(guarded.cpu_us / plain.cpu_us for plain, guarded in turns) - 1)
            fewer = 100 * (1 - statistics.median(guarded.requests_s / plain.requests_s for plain, guarded in turns))
            kept = more <= MOST_PERCENT and fewer <= MOST_PERCENT
            missed += not kept
            medians = [statistics.median(values) for values in zip(*[(*a, *b) for a, b in turns], strict=True)]
            print(
                f"{work.name:32} {medians[0]:8.1f} {medians[2]:8.1f} {medians[1]:9.0f} {medians[3]:9.0f}"
                f"   CPU {more:+.1f} %, requests {-fewer:+.1f} %{'' if kept else '  MISSED'}",
                flush=True,
            )
    return missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
