"""Brokers of a few words, in the place of a cluster whose answers a test decides."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Thread

from kafkad.wire.frames import encode_response
from kafkad.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkad.wire.messages.create_topics import CreateTopicsResponse
from kafkad.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from kctl.reach.connection import Address

METADATA, API_VERSIONS, CREATE_TOPICS, DESCRIBE_QUORUM = 3, 18, 19, 55


class Flaky:
    """A broker that answers ApiVersions and Metadata, and breaks off when told to."""

    def __init__(self, peers: dict[int, Address]) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self.server.getsockname()[1])
        self.peers = peers
        self.cluster_id: str | None = "ours"
        self.controller = 1
        self.served = [METADATA, API_VERSIONS, CREATE_TOPICS]
        self.answers = True
        self.asked: list[int] = []
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self.server.accept()
                Thread(target=self._speak, args=(peer,), daemon=True).start()

    def _speak(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            while head := peer.recv(4, socket.MSG_WAITALL):
                frame = peer.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                key, version, correlation = struct.unpack_from(">hhi", frame)
                self.asked.append(key)
                if not self.answers:
                    return
                peer.sendall(encode_response(key, version, correlation, self._answer(key)))

    def _answer(self, key: int) -> object:
        if key == CREATE_TOPICS:
            return CreateTopicsResponse()
        if key == METADATA:
            nodes = [MetadataResponseBroker(node_id=node, host=a.host, port=a.port) for node, a in self.peers.items()]
            return MetadataResponse(brokers=nodes, controller_id=self.controller, cluster_id=self.cluster_id)
        apis = [ApiVersion(api_key=api, min_version=0, max_version=4) for api in self.served]
        return ApiVersionsResponse(api_keys=apis)

    def die(self) -> None:
        """Whoever is connected learns of it in the middle of an answer."""
        self.answers = False
        self.close()

    def close(self) -> None:
        """Nobody connects any more: without the shutdown, the thread that waits in accept takes one more."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
