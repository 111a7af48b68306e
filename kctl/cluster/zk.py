"""`kctl cluster zk`: what a cluster keeps in ZooKeeper. It only reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from kctl.command import KctlCommand, answer
from kctl.configs.resources import Resource, described
from kctl.errors import Exit, KctlError
from kctl.output import Column
from kctl.session import Session, pass_session

COLUMNS = (
    Column("path", "The znode's path."),
    Column("children", "How many nodes are below it.", "number"),
    Column("bytes", "The length of its data.", "number"),
    Column("version", "How often its data changed.", "number"),
    Column("ephemeral", "Whether it goes with the session of who made it.", wide=True),
    Column("data", "Its data, with get.", machine=True),
)


@click.command("zk", cls=KctlCommand, columns=COLUMNS)
@click.argument("verb", type=click.Choice(("get", "ls")))
@click.argument("path", default="/")
@click.option("--zookeeper", metavar="HOST:PORT,…[/CHROOT]", help="Where.  [default: as the brokers' settings say]")
@pass_session
def zk(session: Session, verb: str, path: str, zookeeper: str | None) -> int:
    """Look into the ZooKeeper of a cluster.

    get prints the data of a node, ls lists the nodes below it. It changes nothing.

    Example: kctl cluster zk get /brokers/topics/orders
    """
    if not path.startswith("/"):
        raise KctlError(f'"{path}" is no path: it begins with /', exit_code=Exit.USAGE)
    where = zookeeper or _address(session)
    with _client(where, session.settings.timeout) as client:
        rows = [_node(client, path)] if verb == "get" else [_node(client, child) for child in _children(client, path)]
    text = (lambda: (rows[0]["data"],)) if verb == "get" else None
    return answer(session, COLUMNS, rows, text=text)


def _address(session: Session) -> str:
    broker = next(iter(session.cluster.brokers))
    resource = Resource("broker", str(broker))
    found, errors = described(session, [resource], ("zookeeper.connect",))
    for error in errors:
        raise error
    for entry in found[resource]:
        if entry.name == "zookeeper.connect" and entry.value:
            return entry.value
    raise KctlError(
        "the cluster does not use ZooKeeper", exit_code=Exit.NOT_FOUND, hints=("--zookeeper says where it is",)
    )


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


def _node(client: Any, path: str) -> dict[str, Any]:
    from kazoo.exceptions import NoNodeError

    try:
        data, stat = client.get(path)
    except NoNodeError:
        raise KctlError(f"ZooKeeper has no {path}", exit_code=Exit.NOT_FOUND) from None
    return {
        "path": path,
        "children": stat.numChildren,
        "bytes": stat.dataLength,
        "version": stat.version,
        "ephemeral": stat.ephemeralOwner != 0,
        "data": (data or b"").decode(errors="backslashreplace"),
    }


def _children(client: Any, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        names: list[str] = client.get_children(path)
    except NoNodeError:
        raise KctlError(f"ZooKeeper has no {path}", exit_code=Exit.NOT_FOUND) from None
    return [f"{path.rstrip('/')}/{name}" for name in sorted(names)]
