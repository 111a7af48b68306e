"""The context of every handler: the parts of the broker, and the request's sender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkad.api.routes import API_NAMES
from kafkad.clock import Clock
from kafkad.errors import Guard, KafkaError
from kafkad.loggers import escaped
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkad.wire.frames import RequestHeader

if TYPE_CHECKING:
    from kafkad.api.audit import Audit
    from kafkad.api.peer import Peer
    from kafkad.api.routes import Route
    from kafkad.api.throttling import Throttle
    from kafkad.api.verifier import Verifier
    from kafkad.cluster.acls import Acls
    from kafkad.cluster.configs import DynamicConfigs
    from kafkad.cluster.features import FinalizedFeatures
    from kafkad.cluster.producer_ids import ProducerIds
    from kafkad.cluster.tokens import DelegationTokens
    from kafkad.config import Config
    from kafkad.controller.configs import ConfigAlterer
    from kafkad.controller.controller import Controller
    from kafkad.controller.entities import EntityAlterer
    from kafkad.controller.link import ControllerLink
    from kafkad.group.committing import OffsetCommitter
    from kafkad.group.coordinator import GroupCoordinator
    from kafkad.group.machine import GroupMachine
    from kafkad.group.stored import StoredOffsets
    from kafkad.log.batch_workers import BatchWorkers
    from kafkad.net.connection import Connection
    from kafkad.replica.manager import ReplicaManager
    from kafkad.replica.markers import Markers
    from kafkad.shard import Coordination
    from kafkad.shard.leadership import Leadership
    from kafkad.timers import Timers
    from kafkad.txn.coordinator import TransactionCoordinator
    from kafkad.upkeep.moves import ReplicaMoves


@dataclass(slots=True, kw_only=True)
class Context:
    """Made once by the broker. Handlers read from it and ask its parts; they keep nothing of their own."""

    cluster_id: str
    broker_id: int
    between_brokers: tuple[Route, ...]
    """The APIs served to other brokers: none where there can be no other broker."""
    config: Config
    clock: Clock
    timers: Timers
    replicas: ReplicaManager
    controller: Controller
    """This broker's own, for requests that only the active one answers; `controller_link` asks the active one."""
    controller_link: ControllerLink
    configs: DynamicConfigs
    acls: Acls | None
    """None without an authorizer: everybody may do everything."""
    alterer: ConfigAlterer
    entity_alterer: EntityAlterer
    tokens: DelegationTokens | None
    """None without `delegation.token.secret.key`."""
    features: FinalizedFeatures
    producer_ids: ProducerIds
    moves: ReplicaMoves
    group_coordination: Coordination[GroupMachine]
    leadership: Leadership
    groups: GroupCoordinator
    offsets: OffsetCommitter
    stored_offsets: StoredOffsets
    markers: Markers
    verifier: Verifier
    batch_workers: BatchWorkers
    transactions: Callable[[], TransactionCoordinator]
    """Made when it is asked for first."""
    audit: Audit


class Request:
    """One request as a handler sees it, beside its message."""

    __slots__ = ("connection", "frame", "header", "throttle")

    def __init__(
        self, header: RequestHeader, connection: Connection, frame: memoryview, throttle: Throttle | None = None
    ) -> None:
        """`frame` is there only while the handler is called: its bytes are received over afterwards. `throttle` is None
        for a client without quotas."""
        self.header = header
        self.connection = connection
        self.frame = frame
        self.throttle = throttle

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client_text(self) -> str:
        """The sender for log lines."""
        return client_text(self.connection, self.header.client_id)

    @property
    def listener(self) -> str:
        return self.peer.listener

    @property
    def peer(self) -> Peer:
        peer: Peer = self.connection.peer
        return peer

    def allowed(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if the peer may do this to the resource of that name, which it has asked for: a refusal is logged."""
        return self.peer.identity.may(operation, resource, name, API_NAMES[self.header.api_key])

    @property
    def restricted(self) -> bool:
        """False where everybody may do everything, and nothing need be asked."""
        return self.peer.identity.restricted

    @property
    def rights(self) -> object:
        """Equal to an earlier one as long as all that was `allowed` since still is."""
        identity = self.peer.identity
        return identity, identity.era

    def check(self, operation: Operation, resource: ResourceType, name: str) -> None:
        """Raises the refusal in the words of Kafka's clients."""
        if not self.allowed(operation, resource, name):
            raise KafkaError(*REFUSALS[resource])

    def on_cluster(self, operation: Operation) -> Guard:
        """For what waits, such as in the controller's queue: the right that the whole request needs may be taken away
        meanwhile."""
        return partial(self.check, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """The same without a log line: where a refusal only leaves something out, or another right will do."""
        return self.peer.identity.allows(operation, resource, name)


def client_text(connection: Connection, client_id: str | None) -> str:
    """The sender of a request for log lines: principal, address and client id."""
    client, principal = client_id or "(unnamed)", str(connection.peer.principal)
    return f"{escaped(principal[:200])} from {connection.address}, client {escaped(client[:200])}"
