"""Links to other brokers over the network, by the listeners that brokers use among themselves."""

from __future__ import annotations

from kafkad import __version__
from kafkad.broker import request_versions
from kafkad.broker.parts import LinkFactory
from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.model import BrokerInfo
from kafkad.net.client import BrokerClient, ClientOptions, Link
from kafkad.timers import Timers


def network_links(
    config: Config, broker_id: int, clock: Clock, timers: Timers, *, control_plane: bool = False
) -> LinkFactory:
    """For the broker `broker_id`, which names itself to the others by its id.

    `control_plane`: to the listener that brokers have for the controller. One that has none yet, while a cluster gets
    it broker by broker, is reached by the other.
    """
    options = ClientOptions(
        client_id=f"broker-{broker_id}",
        software_version=__version__,
        versions=request_versions.of(config.inter_broker_protocol),
    )
    listeners = [config.inter_broker_listener]
    if control_plane and config.control_plane_listener is not None:
        listeners.insert(0, config.control_plane_listener)

    def connect(broker: BrokerInfo) -> Link:
        endpoints = (broker.endpoint(listener) for listener in listeners)
        chosen = next((endpoint for endpoint in endpoints if endpoint is not None), broker.endpoints[0])
        return BrokerClient(chosen, options, clock, timers)

    return connect
