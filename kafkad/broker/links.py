"""Links to other brokers over the network, by the listener that brokers use among themselves."""

from __future__ import annotations

from kafkad import __version__
from kafkad.broker import request_versions
from kafkad.broker.parts import LinkFactory
from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.model import BrokerInfo
from kafkad.net.client import BrokerClient, ClientOptions, Link
from kafkad.timers import Timers


def network_links(config: Config, broker_id: int, clock: Clock, timers: Timers) -> LinkFactory:
    """For the broker `broker_id`, which names itself to the others by its id."""
    options = ClientOptions(
        client_id=f"broker-{broker_id}",
        software_version=__version__,
        versions=request_versions.of(config.inter_broker_protocol),
    )
    listener = config.inter_broker_listener

    def connect(broker: BrokerInfo) -> Link:
        return BrokerClient(broker.endpoint(listener) or broker.endpoints[0], options, clock, timers)

    return connect
