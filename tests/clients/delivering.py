"""The three ways to deliver, as programs that crash between their steps.

    python -m tests.clients.delivering WAY BOOTSTRAP TOPIC DATABASE CRASH_AFTER

Each reads the topic in a group, as one static member, to the ends of its partitions, and keeps every record as a row in
an SQLite database. `at-most-once` commits before it keeps a record, `at-least-once` after, and `exactly-once` stores
the offset together with the record, where it goes on from. After CRASH_AFTER records it kills itself between the two
steps of the next one.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

SECONDS = 60


class Results:
    """Rows of records, and the offset after the last one of each partition."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS results (value TEXT)")
        self._database.execute("CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, offset INTEGER)")

    def keep(self, value: str) -> None:
        self._database.execute("INSERT INTO results VALUES (?)", (value,))

    def begin(self) -> None:
        self._database.execute("BEGIN")

    def store(self, partition: int, offset: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (partition, offset))

    def end(self) -> None:
        self._database.execute("COMMIT")

    def position(self, partition: int) -> int:
        found = self._database.execute("SELECT offset FROM positions WHERE partition = ?", (partition,)).fetchone()
        return int(found[0]) if found else 0

    def values(self) -> list[str]:
        return [value for (value,) in self._database.execute("SELECT value FROM results")]

    def close(self) -> None:
        self._database.close()


class Program:
    def __init__(self, way: str, bootstrap: str, topic: str, results: Results, crash_after: int) -> None:
        self._deliver = {
            "at-most-once": self._commit_then_keep,
            "at-least-once": self._keep_then_commit,
            "exactly-once": self._keep_with_offset,
        }[way]
        self._stores_offsets = way == "exactly-once"
        self._results = results
        self._left = crash_after
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-{way}", "group.instance.id": "one",
             "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
             "log_level": 0}
        )  # fmt: skip
        self._consumer.subscribe([topic], on_assign=self._assigned)
        self._unread: set[int] = set()

    def run(self) -> None:
        """To the end of every partition that it has got."""
        while (message := self._consumer.poll(SECONDS)) is not None:
            if message.error() is None:
                self._deliver(message)
                self._left -= 1
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                self._unread.discard(message.partition())
                if not self._unread:
                    break
        assert not self._unread, f"{self._unread} were not read to the end"
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._unread = {partition.partition for partition in partitions}
        if self._stores_offsets:
            for partition in partitions:
                partition.offset = self._results.position(partition.partition)
            consumer.assign(partitions)

    def _between(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _commit_then_keep(self, message: Message) -> None:
        self._consumer.commit(message, asynchronous=False)
        self._between()
        self._results.keep(message.value().decode())

    def _keep_then_commit(self, message: Message) -> None:
        self._results.keep(message.value().decode())
        self._between()
        self._consumer.commit(message, asynchronous=False)

    def _keep_with_offset(self, message: Message) -> None:
        self._results.begin()
        self._results.keep(message.value().decode())
        self._between()
        self._results.store(message.partition(), message.offset() + 1)
        self._results.end()


def main() -> None:
    way, bootstrap, topic, database, crash_after = sys.argv[1:]
    Program(way, bootstrap, topic, Results(database), int(crash_after)).run()


if __name__ == "__main__":
    main()
