"""What became of a write whose reply was lost.

It is sent again, and may then be refused only because it was carried out the first time: a node is there already, or
has another version. Whoever made it is not to hear of that, so the nodes are compared with what the write left.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.meta.store import Check, Create, Delete, MetaStore, Operation, Result, Set, Stat

Node = tuple[bytes, Stat] | None


async def results_if_carried_out(store: MetaStore, operations: Sequence[Operation]) -> list[Result] | None:
    """What a transaction had as its results, if all of its nodes are as it left them; else None.

    None also where it made a sequential node, for nobody can tell which one.
    """
    if any(isinstance(operation, Create) and operation.sequential for operation in operations):
        return None
    last = {operation.path: operation for operation in operations if not isinstance(operation, Check)}
    unchanged = [operation for operation in operations if operation.path not in last]
    mine = {operation.path for operation in operations if isinstance(operation, Create) and operation.ephemeral}
    paths = [*last, *dict.fromkeys(operation.path for operation in unchanged)]
    nodes: dict[str, Node] = dict(zip(paths, await store.get_many(paths), strict=True))
    if not all(_stands(operation, nodes[operation.path]) for operation in (*last.values(), *unchanged)):
        return None
    if any(node[1].ephemeral_owner != store.session_id for path in mine if (node := nodes[path]) is not None):
        return None
    return [_result(operation, nodes[operation.path]) for operation in operations]


def _stands(operation: Operation, node: Node) -> bool:
    if isinstance(operation, Delete):
        return node is None
    if node is None:
        return False
    data, stat = node
    return stat.version == operation.version if isinstance(operation, Check) else data == operation.data


def _result(operation: Operation, node: Node) -> Result:
    if isinstance(operation, Create):
        return operation.path
    return node[1] if isinstance(operation, Set) and node is not None else None
