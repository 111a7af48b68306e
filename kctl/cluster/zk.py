"""`kctl cluster zk`: what a cluster keeps in ZooKeeper, or a kafkad in the store that it has instead. It only reads."""

from __future__ import annotations

from typing import Any

import click

from kctl.cluster.nodes import MetadataStore
from kctl.cluster.store import metadata_store, store_options
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Writer
from kctl.texts.taming import line_text

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
@store_options
@pass_session
def zk(session: Session, verb: str, path: str, zookeeper: str | None, data: str | None) -> int:
    """Read the metadata store of a cluster: ZooKeeper, or kafkad's own.

    get prints the data of a node, ls lists its children. Nothing is changed. A kafkad without ZooKeeper keeps the same
    nodes in a journal, which can be read on its own machine with --data, whether it is running or not.

    Example: kctl cluster zk get /brokers/topics/orders
    """
    if not path.startswith("/"):
        raise KctlError(f'"{path}" is not a path: paths begin with /', exit_code=Exit.USAGE)
    path = path.rstrip("/") or "/"
    with metadata_store(session, zookeeper, data) as store:
        rows = [_row(store, path)] if verb == "get" else [_row(store, child) for child in _children(store, path)]
    writer = Writer(session.settings, COLUMNS, Document(session.settings.command))
    if verb == "get" and session.settings.is_text and not session.settings.columns:
        writer.print_text(map(line_text, rows[0]["data"].split("\n")))
    else:
        writer.write(rows)
    return Exit.DONE


def _row(store: MetadataStore, path: str) -> dict[str, Any]:
    node = store.node(path)
    if node is None:
        raise _no_node(path)
    return {
        **node._asdict(),
        "path": path,
        "bytes": len(node.data),
        "data": node.data.decode(errors="backslashreplace"),
    }


def _children(store: MetadataStore, path: str) -> list[str]:
    names = store.children(path)
    if names is None:
        raise _no_node(path)
    return [f"{path.rstrip('/')}/{name}" for name in names]


def _no_node(path: str) -> KctlError:
    return KctlError(f"the metadata store has no {path}", exit_code=Exit.NOT_FOUND)
