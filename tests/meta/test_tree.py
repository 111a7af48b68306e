"""The tree held against a model that is only a dictionary: any transactions, taken back or replayed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkad.meta.store import Check, Create, Delete, MultiFailed, Operation, Set
from kafkad.meta.tree import Tree

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
versions = st.integers(-1, 2)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, paths, st.binary(max_size=3), st.booleans(), st.booleans()),
    st.builds(Set, paths, st.binary(max_size=3), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
transactions = st.lists(st.tuples(st.lists(operations, min_size=1, max_size=4), st.integers(1, 2)), max_size=25)


def dump(tree: Tree) -> dict[str, tuple[object, ...]]:
    return {path: (node.data, *node.stat) for path, node in tree._walk()}


class Model:
    """A model of the tree: data, version and owner of each path. It refuses what ZooKeeper refuses."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int]] = {"/": (b"", 0, 0)}
        self.made: dict[str, int] = {}

    def apply(self, transaction: list[Operation], session: int) -> bool:
        nodes, made = dict(self.nodes), dict(self.made)
        for operation in transaction:
            if not self._one(operation, session):
                self.nodes, self.made = nodes, made
                return False
        return True

    def _one(self, operation: Operation, session: int) -> bool:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(operation, session)
        if path not in self.nodes:
            return False
        _, version, owner = self.nodes[path]
        if operation.version not in (-1, version):
            return False
        if isinstance(operation, Set):
            self.nodes[path] = (operation.data, version + 1, owner)
        elif isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in self.nodes):
                return False
            del self.nodes[path]
            self.made.pop(path, None)
        return True

    def _create(self, create: Create, session: int) -> bool:
        parent = create.path.rpartition("/")[0] or "/"
        if parent not in self.nodes or self.nodes[parent][2]:
            return False
        path = create.path + f"{self.made.get(parent, 0):010d}" if create.sequential else create.path
        if path in self.nodes:
            return False
        self.nodes[path] = (create.data, 0, session if create.ephemeral else 0)
        self.made[parent] = self.made.get(parent, 0) + 1
        return True


@given(transactions)
def test_the_tree_does_what_the_model_does(history: list[tuple[list[Operation], int]]) -> None:
    tree, model, journal = Tree(), Model(), []
    for transaction, session in history:
        before = dump(tree)
        try:
            applied = tree.apply(transaction, session, 7)
        except MultiFailed:
            assert dump(tree) == before
            assert not model.apply(transaction, session)
        else:
            assert model.apply(transaction, session)
            journal.append(applied.entry)
        assert {p: (n.data, n.version, n.owner) for p, n in tree._walk()} == model.nodes
    again = Tree()
    for entry in journal:
        again.replay(entry)
    assert dump(again) == dump(tree)
    loaded = Tree()
    loaded.replay(tree.snapshot())
    assert dump(loaded) == dump(tree)
    assert loaded.zxid == tree.zxid
    for copy in (again, loaded):
        copy.end_all_sessions(9)
    assert dump(again) == dump(loaded)
    assert not any(node.owner for _, node in loaded._walk())


@given(transactions)
def test_any_number_of_transactions_can_be_taken_back(history: list[tuple[list[Operation], int]]) -> None:
    tree = Tree()
    states, done = [dump(tree)], []
    for transaction, session in history:
        try:
            done.append(tree.apply(transaction, session, 7))
        except MultiFailed:
            continue
        states.append(dump(tree))
    while done:
        assert dump(tree) == states.pop()
        done.pop().roll_back()
    assert dump(tree) == states.pop()
