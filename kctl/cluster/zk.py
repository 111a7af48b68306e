"""`kctl cluster zk`: what a cluster keeps in ZooKeeper, or a kafkad in the store that it has instead. It only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kctl.command import KctlCommand
from kctl.configs.resources import Resource, described
from kctl.errors import Exit, KctlError
from kctl.output import Column, Document, Row, Writer
from kctl.session import Session, pass_session
from kctl.settings import Settings

if TYPE_CHECKING:
    from kctl.cluster.embedded_store import EmbeddedReader, StoredNode

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
@click.option(
    "--data", metavar="DIRECTORY", help="Of a kafkad on this machine without ZooKeeper: the directory of its metadata."
)
@pass_session
def zk(session: Session, verb: str, path: str, zookeeper: str | None, data: str | None) -> int:
    """Look into the metadata store of a cluster: ZooKeeper, or kafkad's own.

    get prints the data of a node, ls lists the nodes below it. It changes nothing. A kafkad without ZooKeeper keeps the
    same nodes in a journal, which is read on its own machine; it may be running, or not (--data).

    Example: kctl cluster zk get /brokers/topics/orders
    """
    if not path.startswith("/"):
        raise KctlError(f'"{path}" is no path: it begins with /', exit_code=Exit.USAGE)
    path = path.rstrip("/") or "/"
    if data is not None:
        if zookeeper is not None:
            raise KctlError("--zookeeper and --data are two stores: give one", exit_code=Exit.USAGE)
        return _print_rows(session.settings, verb, _stored(_reader(data), verb, path))
    where = zookeeper or _address(session)
    if where is None:
        return _print_rows(session.settings, verb, _stored(_of_this_machine(session), verb, path))
    with _client(where, session.settings.timeout) as client:
        rows = [_node(client, path)] if verb == "get" else [_node(client, child) for child in _children(client, path)]
    return _print_rows(session.settings, verb, rows)


def _print_rows(settings: Settings, verb: str, rows: Sequence[Row]) -> int:
    writer = Writer(settings, COLUMNS, Document(settings.command))
    if verb == "get" and settings.is_text and not settings.columns:
        writer.print_text([rows[0]["data"]])
    else:
        writer.write(rows)
    return Exit.DONE


def _reader(directory: str) -> EmbeddedReader:
    from kctl.cluster.embedded_store import EmbeddedReader

    return EmbeddedReader(directory)


def _stored(reader: EmbeddedReader, verb: str, path: str) -> list[Row]:
    node = reader.node(path)
    if node is None:
        raise KctlError(f"the metadata has no {path}", exit_code=Exit.NOT_FOUND)
    if verb == "get":
        return [_stored_row(path, node)]
    below = [f"{path.rstrip('/')}/{name}" for name in node.children]
    return [_stored_row(child, found) for child in below if (found := reader.node(child)) is not None]


def _stored_row(path: str, node: StoredNode) -> Row:
    return {
        "path": path,
        "children": len(node.children),
        "bytes": len(node.data),
        "version": node.version,
        "ephemeral": node.ephemeral,
        "data": node.data.decode(errors="backslashreplace"),
    }


def _of_this_machine(session: Session) -> EmbeddedReader:
    """The store of the kafkad that was asked, if it is here."""
    from kctl.cluster.embedded_store import first_with_journal

    settings = _settings(session, ("kafkad.metadata.dir", "log.dirs", "log.dir"))
    places = [
        settings.get("kafkad.metadata.dir", ""),
        *(settings.get("log.dirs") or settings.get("log.dir", "")).split(","),
    ]
    found = first_with_journal(place.strip() for place in places if place.strip())
    reader = _reader(found) if found else None
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
