"""Settings of each broker where `kafkad.brokers` starts several on one host: ids, ports and directories of its own.

The first broker keeps what is configured, so that the data directory of a single broker is the first's. Each of the
others has the next id, ports that are higher by one, and `brokers/ID` in each log directory: a name without a dash,
which is no partition's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkad.model import Endpoint

if TYPE_CHECKING:
    from kafkad.config.config import Config

DIRECTORY = "brokers"
_LAST_PORT = 65535


def settings_of(config: Config, index: int, first_id: int) -> list[str]:
    """`NAME=VALUE` of the broker number `index`, counted from 0.

    Its supervisor serves HTTP and keeps the metadata: the first broker tells where, to whoever asks for its settings.
    """
    broker = first_id + index
    settings = [
        f"broker.id={broker}",
        "broker.id.generation.enable=false",
        f"listeners={_texts(config.listeners, index)}",
        f"log.dirs={','.join(log_dirs_of(config, index, broker))}",
        f"kafkad.metadata.dir={config.metadata_dir}",
        "kafkad.brokers=1",
    ]
    if index > 0:
        settings.append("http.listener=")
    if config.value("advertised.listeners"):
        settings.append(f"advertised.listeners={_texts(config.advertised_listeners, index)}")
    return settings


def given_to_brokers(config: Config) -> frozenset[str]:
    """The settings of which none of the brokers sees what its file says. `broker.id` has two names."""
    return frozenset(["node.id", *(setting.partition("=")[0] for setting in settings_of(config, 0, 0))])


def log_dirs_of(config: Config, index: int, broker: int) -> list[str]:
    """Each broker begins with another one. New partitions go to the first of those with the fewest, and so the replicas
    of a partition to different disks, as long as all brokers have as many."""
    paths = [path if index == 0 else os.path.join(path, DIRECTORY, str(broker)) for path in config.log_dirs]
    first = index % len(paths)
    return paths[first:] + paths[:first]


def contradictions_of_several(config: Config) -> list[str]:
    brokers = config.int("kafkad.brokers")
    if brokers == 1:
        return []
    problems = []
    if config.value("zookeeper.connect"):
        problems.append(
            "kafkad.brokers starts several brokers without ZooKeeper, so zookeeper.connect cannot be set with it; with "
            "ZooKeeper, start each broker by itself, as the unit kafkad@ID does"
        )
    return problems + _ports(config, brokers)


def _ports(config: Config, brokers: int) -> list[str]:
    """Listeners whose ports are close together would meet those of the next broker."""
    taken: dict[int, str] = {}
    http = config.http_listener
    if http is not None and http[1]:
        taken[http[1]] = "http.listener"
    for index in range(brokers):
        own = {endpoint.port + index: endpoint for endpoint in config.listeners if endpoint.port}
        for port, endpoint in own.items():
            if port > _LAST_PORT:
                return [f"listener {endpoint.listener} of the last of {brokers} brokers would have port {port}"]
            if port in taken:
                both = f"{taken[port]} and of listener {endpoint.listener} of broker number {index + 1}"
                advice = f"leave {brokers} ports free from each configured one, as each broker takes the next"
                return [f"port {port} would be that of {both}: {advice}"]
        taken |= {port: f"listener {e.listener} of broker number {index + 1}" for port, e in own.items()}
    return []


def _texts(endpoints: Iterable[Endpoint], index: int) -> str:
    return ",".join(_text(endpoint, index) for endpoint in endpoints)


def _text(endpoint: Endpoint, index: int) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port + index if endpoint.port else 0}"
