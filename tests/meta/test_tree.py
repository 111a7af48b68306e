"""The tree held against a model that is only a dictionary: any transactions, taken back or replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.meta import tree as trees
from kafkad.meta.store import Check, Create, Delete, MultiFailed, Operation, Set
from kafkad.meta.tree import Tree
from kafkad.turns import Pieces, at_once

History = list[tuple[list[Operation], int]]


def histories(names: str, depth: int, versions: st.SearchStrategy[int]) -> st.SearchStrategy[History]:
    """Transactions, each with its session."""
    paths = st.lists(st.sampled_from(names), min_size=1, max_size=depth).map(lambda each: "/" + "/".join(each))
    operations: st.SearchStrategy[Operation] = st.one_of(
        st.builds(Create, paths, st.binary(max_size=3), st.booleans(), st.booleans()),
        st.builds(Set, paths, st.binary(max_size=3), versions),
        st.builds(Delete, paths, versions),
        st.builds(Check, paths, versions),
    )
    return st.lists(st.tuples(st.lists(operations, min_size=1, max_size=4), st.integers(1, 2)), max_size=25)


transactions = histories("abc", 3, st.integers(-1, 2))
likely = histories("ab", 2, st.just(-1))
"""Most of these are not refused."""


def dump(tree: Tree) -> dict[str, tuple[object, ...]]:
    return {path: (node.data, *node.stat) for path, node in tree.walk()}


def owned(tree: Tree) -> dict[int, set[str]]:
    """The ephemeral nodes of each session that has any."""
    of_sessions: dict[int, set[str]] = {}
    for path, node in tree.walk():
        if node.owner:
            of_sessions.setdefault(node.owner, set()).add(path)
    return of_sessions


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
def test_the_tree_does_what_the_model_does(history: History) -> None:
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
        assert {p: (n.data, n.version, n.owner) for p, n in tree.walk()} == model.nodes
        assert tree._ephemerals == owned(tree), "nothing is kept of a session that has no node any more"
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
    assert not any(node.owner for _, node in loaded.walk())
    assert again._ephemerals == loaded._ephemerals == {}


@given(transactions)
def test_any_number_of_transactions_can_be_taken_back(history: History) -> None:
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
        assert tree._ephemerals == owned(tree)
    assert dump(tree) == states.pop()


@pytest.fixture(scope="module")
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "_NODES_A_PIECE", 1)
        yield


@pytest.mark.usefixtures("small_pieces")
@given(likely, st.integers(0, 2), st.integers(0, 3))
def test_a_snapshot_is_of_one_moment(meanwhile: History, pieces: int, taken_back: int) -> None:
    """Whatever changes while it is made, is refused in the middle, or is taken back."""
    tree = Tree()
    tree.apply([Create(path, b"old") for path in ("/a", "/b", "/a/a", "/a/b", "/b/a")], 1, 7)
    expected, zxid = dump(tree), tree.zxid
    made: list[bytes] = []
    making = collecting(tree.snapshotting(), made)
    applied = []
    for transaction, session in meanwhile:
        deque(islice(making, pieces), 0)
        with suppress(MultiFailed):
            applied.append(tree.apply(transaction, session, 8))
    for last in applied[::-1][:taken_back]:
        last.roll_back()
    at_once(making)
    loaded = Tree()
    loaded.replay(*made)
    assert dump(loaded) == expected
    assert loaded.zxid == zxid


def collecting(pieces: Pieces[bytes], made: list[bytes]) -> Pieces[None]:
    made.append((yield from pieces))
