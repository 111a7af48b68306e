"""An honest client beside an attack: it asks little and often, and remembers how long it ever waited for an answer.

    python -m tests.attacks.honest PORT PID      until its standard input ends; then one line of JSON

A process of its own, so that it is not slowed by the attacker. It also tells for how much CPU of the broker, whose
process PID is, it ever waited: on a machine that is busy with other things, that is the broker's part of a wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import sys
import time
from itertools import cycle

from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import Record, build_batch
from tests.broker import API_VERSIONS_V0, RawClient

TOPIC = "honest"
NAP_S = 0.004
LONGEST_S = 300


def questions() -> list[bytes]:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x" * 100)]))
    produce = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    return [
        struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0,
        encode_request(RequestHeader(0, 9, 1, "honest"), produce),
        encode_request(RequestHeader(3, 9, 2, "honest"), metadata),
    ]


def wake_at_once() -> None:
    """Ask, where that is allowed, to run before all other processes: when a busy machine lets this one wait for a core
    although the answer is there, what the broker does meanwhile would be counted as part of the wait."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))


def main() -> None:
    wake_at_once()
    longest = worked = 0.0
    asked = 0
    cpu_clock = (~int(sys.argv[2]) << 3) | 2  # the kernel's number for another process's CPU clock
    with RawClient(int(sys.argv[1]), timeout=LONGEST_S) as client:
        for question in cycle(questions()):
            begin, begin_cpu = time.monotonic(), time.clock_gettime(cpu_clock)
            client.send(question)
            client.receive_frame()
            longest = max(longest, time.monotonic() - begin)
            worked = max(worked, time.clock_gettime(cpu_clock) - begin_cpu)
            asked += 1
            if asked == 3:
                print("ready", flush=True)
            if select.select([sys.stdin], [], [], NAP_S)[0]:
                break
    print(json.dumps({"longest_ms": longest * 1000, "worked_ms": worked * 1000, "asked": asked}))


if __name__ == "__main__":
    main()
