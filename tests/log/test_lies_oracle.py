"""The batches that lie, sent to a real Kafka: does it still answer what is written down?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkad.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker import RawClient
from tests.log.lies import ANSWERS, TOPICS, Lie, Told, answers, key, lies
from tests.log.test_validate_oracle import ask, fetch_header, kafka_with_topics, produce
from tests.oracle.kafka import missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]

LIST_OFFSETS = 2
LATEST = -1
STAMPED = -2
"""In place of the time of the day."""


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    with kafka_with_topics() as connection:
        yield connection


def end_of(client: RawClient, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    end: int = ask(client, LIST_OFFSETS, 4, request).topics[0].partitions[0].offset
    return end


def told(client: RawClient, topic: str, lie: Lie) -> Told:
    before = end_of(client, topic)
    code = produce(client, topic, lie.batch, 8).error_code
    moved = end_of(client, topic) - before
    if code or not moved:
        return Told(code, moved, -1)
    stored = fetch_header(client, topic, before)
    return Told(code, moved, STAMPED if stored.timestamp_type == "LogAppendTime" else stored.max_timestamp)


def all_told(client: RawClient) -> dict[str, dict[str, Told]]:
    return {topic: {key(lie): told(client, topic, lie) for lie in lies()} for topic in TOPICS}


def test_kafka_still_answers_so(client: RawClient) -> None:
    assert all_told(client) == answers()


def main() -> None:
    with kafka_with_topics() as connection:
        found = all_told(connection)
    lines = [("lie", *TOPICS)]
    lines += [(key(lie), *(" ".join(map(str, found[topic][key(lie)])) for topic in TOPICS)) for lie in lies()]
    ANSWERS.write_text("".join("\t".join(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
