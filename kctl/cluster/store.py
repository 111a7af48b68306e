"""The metadata store of a cluster, to be looked into: ZooKeeper, or the journal of a kafkad without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kctl.cluster.nodes import MetadataStore, StoredNode
from kctl.configs.resources import Resource, described
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session

R = TypeVar("R")


def store_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options that locate the store: `zookeeper` and `data`."""
    address = click.option(
        "--zookeeper",
        metavar="HOST:PORT,…[/CHROOT]",
        help="The ZooKeeper to read.  [default: from the brokers' settings]",
    )
    directory = click.option(
        "--data",
        metavar="DIRECTORY",
        help="The metadata directory of a kafkad without ZooKeeper on this machine.",
    )
    decorated: Callable[..., R] = address(directory(command))
    return decorated


@contextmanager
def metadata_store(session: Session, zookeeper: str | None, data: str | None) -> Iterator[MetadataStore]:
    """The store that --zookeeper or --data names, or else the cluster's own. If one is named, no broker is asked."""
    if data is not None:
        if zookeeper is not None:
            raise KctlError("--zookeeper and --data are different stores: give only one", exit_code=Exit.USAGE)
        yield _journal(data)
    elif where := zookeeper or _address(session):
        with _client(where, session.settings.timeout) as client:
            yield _ZooKeeper(client)
    else:
        yield _of_this_machine(session)


class _ZooKeeper:
    def __init__(self, client: Any) -> None:
        self._client = client

    def node(self, path: str) -> StoredNode | None:
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = self._client.get(path)
        except NoNodeError:
            return None
        return StoredNode(data or b"", stat.numChildren, stat.version, stat.ephemeralOwner != 0)

    def children(self, path: str) -> list[str] | None:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return None


def _journal(directory: str) -> MetadataStore:
    from kctl.cluster.embedded_store import EmbeddedReader

    return EmbeddedReader(directory)


def _of_this_machine(session: Session) -> MetadataStore:
    """The store of the kafkad that was asked, if it is here."""
    from kctl.cluster.embedded_store import first_with_journal

    settings = _settings(session, ("kafkad.metadata.dir", "log.dirs", "log.dir"))
    places = [
        settings.get("kafkad.metadata.dir", ""),
        *(settings.get("log.dirs") or settings.get("log.dir", "")).split(","),
    ]
    found = first_with_journal(place.strip() for place in places if place.strip())
    reader = _journal(found) if found else None
    node = reader.node("/cluster/id") if reader else None
    if reader is None or node is None or (session.cluster.cluster_id or "").encode() not in node.data:
        raise KctlError(
            "the cluster does not use ZooKeeper",
            exit_code=Exit.NOT_FOUND,
            hints=(
                "a kafkad has its metadata in a journal: run this on its machine, or with --data and a copy of it",
                "--zookeeper says where ZooKeeper is; of a KRaft cluster kctl dump-segment reads __cluster_metadata-0",
            ),
        )
    return reader


def _address(session: Session) -> str | None:
    return _settings(session, ("zookeeper.connect",)).get("zookeeper.connect") or None


def _settings(session: Session, names: tuple[str, ...]) -> dict[str, str]:
    resource = Resource("broker", str(next(iter(session.cluster.brokers))))
    found, errors = described(session, [resource], names)
    for error in errors:
        raise error
    return {entry.name: entry.value for entry in found[resource] if entry.value}


@contextmanager
def _client(address: str, timeout: float) -> Iterator[Any]:
    import logging

    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise KctlError("kazoo is not installed, and ZooKeeper needs it", hints=("pip install kazoo",)) from None
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    client = KazooClient(hosts=address, timeout=timeout, read_only=True)
    try:
        client.start(timeout=timeout)
        yield client
    except KazooTimeoutError:
        raise KctlError(f"ZooKeeper at {address} does not answer", exit_code=Exit.UNREACHABLE) from None
    except KazooException as error:
        raise KctlError(f"ZooKeeper at {address}: {type(error).__name__} {error}".rstrip()) from None
    finally:
        client.stop()
        client.close()
