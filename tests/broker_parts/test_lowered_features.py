"""A Kafka 3.9 joins, by which the transaction version falls: clients that were told more come back and hear of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkad.meta.znodes import Broker as Registration
from kafkad.model import BrokerInfo, Endpoint
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkad.wire.schema import read
from tests.broker_parts.several import NETWORK, Brokers

KAFKA = BrokerInfo(id=3, endpoints=(Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9),))
OURS = "kafkad"


class Client:
    def __init__(self, brokers: Brokers, version: int, software: str = "apache-kafka-java") -> None:
        self.version = version
        self.request = ApiVersionsRequest(client_software_name=software, client_software_version="4.3.1")
        self.left: asyncio.Future[bytes]
        self.brokers = brokers

    async def ask(self) -> tuple[int, int]:
        """The epoch and the transaction version."""
        [listener] = self.brokers[1].parts.platform.server.listeners
        reader, self.writer = await asyncio.open_connection("127.0.0.1", listener.port)
        self.writer.write(encode_request(RequestHeader(18, self.version, 1, "a"), self.request))
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        _, at = read_response_header(18, self.version, frame, 0)
        told, _ = read(ApiVersionsResponse, self.version, memoryview(frame), at)
        self.left = asyncio.ensure_future(reader.read())
        levels = {one.name: one.max_version_level for one in told.finalized_features}
        return told.finalized_features_epoch, levels.get("transaction.version", 0)

    async def close(self) -> None:
        self.writer.close()
        await self.left


def test_clients_that_were_told_more_come_back_and_hear_of_it(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, NETWORK)
    brokers.start(1, 2)
    brokers.meet()
    told, of_before, another_broker = Client(brokers, 4), Client(brokers, 0), Client(brokers, 3, OURS)
    epoch, version = brokers.ended(told.ask())
    assert version == 2
    for client in (of_before, another_broker):
        brokers.ended(client.ask())
    kafka = brokers.store.session()
    brokers.ended(kafka.create(Registration.path(3), Registration(broker=KAFKA, timestamp_ms=0).encode()))
    brokers.until(told.left.done, advance_ms=10)
    brokers.ended(told.close())
    higher, version = brokers.ended(told.ask())
    assert (higher > epoch, version) == (True, 0)
    brokers.work_for(2_000)
    assert not any(client.left.done() for client in (told, of_before, another_broker))
    brokers.ended(kafka.delete(Registration.path(3)))
    brokers.work_for(2_000)
    assert not told.left.done()
    brokers.ended(kafka.create(Registration.path(3), Registration(broker=KAFKA, timestamp_ms=0).encode()))
    brokers.until(told.left.done, advance_ms=10)  # another broker may have told its client more since
    for client in (told, of_before, another_broker):
        brokers.ended(client.close())
    brokers.stop()
