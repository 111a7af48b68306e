"""Links to other brokers over the network, by the listeners that brokers use among themselves."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from kafkad import __version__
from kafkad.broker import request_versions
from kafkad.broker.starting import LinkFactory
from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.config.listeners import ENCRYPTED
from kafkad.model import BrokerInfo
from kafkad.net.client import BrokerClient, ClientOptions, FrameLink
from kafkad.net.lifeline import seconds_between_looks
from kafkad.net.transport import Transport
from kafkad.timers import Timers

if TYPE_CHECKING:
    from kafkad.broker.tls import BrokerTls


def network_links(
    config: Config,
    broker_id: int,
    clock: Clock,
    timers: Timers,
    *,
    control_plane: bool = False,
    tls: BrokerTls | None = None,
    config_now: Callable[[], Config] | None = None,
    threads: Executor | None = None,
) -> LinkFactory:
    """For the broker `broker_id`, which names itself to the others by its id.

    `control_plane`: to the listener that brokers have for the controller. One that has none yet, while a cluster gets
    it broker by broker, is reached by the other. `config_now` has the passwords in force, if they may change; tokens
    are asked for in `threads`.
    """
    options = ClientOptions(
        client_id=f"broker-{broker_id}",
        software_version=__version__,
        versions=request_versions.of(config.inter_broker_protocol),
        look_s=seconds_between_looks(config.long("replica.lag.time.max.ms")),
    )
    listeners = [config.inter_broker_listener]
    if control_plane and config.control_plane_listener is not None:
        listeners.insert(0, config.control_plane_listener)

    async def secure(tls: BrokerTls, listener: str, sock: socket.socket, host: str) -> Transport:
        from kafkad.net.tls import connect as connect_over_tls

        return await connect_over_tls(tls.layer, tls.client_context(listener), sock, host)

    def connect(broker: BrokerInfo) -> FrameLink:
        endpoints = (broker.endpoint(listener) for listener in listeners)
        chosen = next((endpoint for endpoint in endpoints if endpoint is not None), broker.endpoints[0])
        encrypted = partial(secure, tls, chosen.listener) if tls and chosen.protocol in ENCRYPTED else None
        login = None
        if chosen.protocol.startswith("SASL_"):
            from kafkad.broker.sasl_client import login as login_at

            login = login_at(config_now or (lambda: config), chosen.listener, clock, threads)
        return BrokerClient(chosen, options, clock, timers, login, encrypted)

    return connect
