"""One connection that asks a broker in any version of any API; fields that a version does not have are left out."""

from __future__ import annotations

from typing import Any

from kafkad.errors import ErrorCode
from kafkad.wire.apis import APIS, request_class, response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import Message, read, within
from tests.broker import RawClient

Plain = Any
"""A message as dicts, lists and values."""

KEYS = {api.name: api.key for api in APIS.values()}
STAMP_MS = 1_700_000_000_000


def batch(count: int, stamp: int = STAMP_MS) -> bytes:
    records = [Record(i, stamp + i, b"k%d" % i, b"v%d" % i, (("h", b"1"),)) for i in range(count)]
    return bytes(build_batch(records))


class Asker:
    """Asks one broker; fields that a version does not have are left out of what is asked."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", client_id: str = "probe", timeout: float = 40) -> None:
        self.port = port
        self.client = RawClient(port, host=host, timeout=timeout)
        self._client_id = client_id
        self._correlation = 0
        try:
            answer = self.ask("ApiVersions", 3, {"client_software_name": "probe", "client_software_version": "1"})
        except OSError:
            self.client.close()
            raise
        self.served = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def ask(self, api: str, version: int, question: Plain) -> Any:
        self.send(api, version, question)
        return self.receive(api, version)

    def send(self, api: str, version: int, question: Plain) -> None:
        self._correlation += 1
        header = RequestHeader(KEYS[api], version, self._correlation, self._client_id)
        self.client.send(encode_request(header, from_plain(request_class(KEYS[api]), question, version)))

    def receive(self, api: str, version: int) -> Any:
        """The answer to what was sent last."""
        key = KEYS[api]
        frame = self.client.receive_frame()
        correlation, at = read_response_header(key, version, frame)
        assert correlation == self._correlation
        answer, end = read(response_class(key), version, frame, at)
        assert end == len(frame), f"{len(frame) - end} bytes are left over"
        return answer

    def topic_id(self, topic: str) -> bytes:
        answer = self.ask("Metadata", 12, {"topics": [{"name": topic}]})
        return bytes(answer.topics[0].topic_id)

    def create(self, topic: str, **config: str) -> None:
        """A topic of one partition with two batches of three records."""
        configs = [{"name": name.replace("_", "."), "value": value} for name, value in config.items()]
        new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
        answer = self.ask("CreateTopics", 4, {"topics": [new], "timeout_ms": 30000})
        assert answer.topics[0].error_code == 0, answer
        while self.ask("Metadata", 4, {"topics": [{"name": topic}]}).topics[0].error_code:
            pass
        for stamp in (STAMP_MS, STAMP_MS + 1000):
            self._append(topic, batch(3, stamp))

    def _append(self, topic: str, records: bytes) -> None:
        """Kafka names a leader before that broker knows of it, so a produce may come too early."""
        while True:
            sent = self.ask("Produce", 7, produce(topic, records))
            code = sent.responses[0].partition_responses[0].error_code
            if code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                break
        assert code == ErrorCode.NONE, sent


def from_plain(cls: type[Message], plain: Plain, version: int) -> Message:
    values = {}
    for field in cls.__schema__.fields:
        if field.name not in plain or not within(version, field.versions):
            continue
        value = plain[field.name]
        nested = isinstance(field.item, type) and issubclass(field.item, Message)
        if nested and isinstance(value, list):
            value = [from_plain(field.item, item, version) for item in value]
        elif nested and value is not None:
            value = from_plain(field.item, value, version)
        values[field.name] = value
    return cls(**values)


def produce(topic: str, records: bytes, **more: Plain) -> Plain:
    partitions = [{"index": 0, "records": records}]
    return {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": topic, "partition_data": partitions, **more}]}
