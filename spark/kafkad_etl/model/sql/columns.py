"""Resolves the columns that a SELECT reads and produces.

All guesses err on the safe side: where a name may come from somewhere invisible here, nothing is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from sqlglot import exp

from kafkad_etl.model.sql.parsing import TIME_WINDOWS
from kafkad_etl.model.sql.terms import Columns

_ALWAYS = {"window", "session_window"}
"""Columns created by grouping by time."""


Node: TypeAlias = Any
"""A node of sqlglot's trees, whose classes differ between versions."""


class Missing(NamedTuple):
    node: Node
    name: str
    known: tuple[str, ...]
    is_view: bool


Views = Mapping[str, Columns]
_Relation = tuple[str, Columns]


class Analysis:
    """The analysis of one query over `views`, whose names are in lower case."""

    def __init__(self, query: Node, views: Views) -> None:
        self.missing: list[Missing] = []
        self.result = self._query(query, views, ())

    def _query(self, query: Node, views: Views, outer: tuple[_Relation, ...]) -> Columns:
        views = dict(views)
        for cte in getattr(query, "ctes", ()):
            columns = self._query(cte.this, views, outer)
            named = tuple(column.name for column in cte.args["alias"].columns)
            views[cte.alias.lower()] = Columns(named, True) if named else columns
        if isinstance(query, exp.SetOperation):
            left = self._query(query.left, views, outer)
            self._query(query.right, views, outer)
            return left._replace(types={})  # which those of the right may widen
        if isinstance(query, exp.Subquery):
            return self._query(query.this, views, outer)
        return self._select(query, views, outer) if isinstance(query, exp.Select) else Columns()

    def _select(self, select: exp.Select, views: Views, outer: tuple[_Relation, ...]) -> Columns:
        inside: list[Node] = []
        relations = tuple(self._relations(select, views, outer, inside))
        self._check(select, (*relations, *outer))
        for query in _direct_queries(select):
            if not any(query is known for known in inside):
                self._query(query, views, (*relations, *outer))
        return _projected(select, relations)

    def _relations(
        self, select: exp.Select, views: Views, outer: tuple[_Relation, ...], inside: list[Node]
    ) -> Iterator[_Relation]:
        """The relations in FROM and JOIN. Queries analysed here are added to `inside`."""
        first = argument(select, "from")
        for relation in [*([first.this] if first else []), *(join.this for join in select.args.get("joins") or ())]:
            if isinstance(relation, exp.Subquery):
                inside.append(relation)
                columns = self._query(relation.this, views, outer)
                yield relation.alias.lower(), Columns() if relation.args.get("pivots") else _renamed(relation, columns)
            elif isinstance(relation, exp.Table):
                yield self._table(relation, views)
            else:
                yield relation.alias.lower(), Columns()
            for lateral in relation.args.get("laterals") or ():
                yield _lateral(lateral)
        for lateral in select.args.get("laterals") or ():
            yield _lateral(lateral)

    def _table(self, table: exp.Table, views: Views) -> _Relation:
        name = table.alias_or_name.lower()
        if not isinstance(table.this, exp.Identifier) or table.db or table.args.get("pivots"):
            return name, Columns()  # a function, or a table of a catalog
        if table.name.lower() not in views:
            self.missing.append(Missing(table, table.name, tuple(views), True))
        return name, _renamed(table, views.get(table.name.lower(), Columns()))

    def _check(self, select: exp.Select, visible: tuple[_Relation, ...]) -> None:
        if not all(columns.complete for _, columns in visible):
            return
        aliases = {projection.alias.lower() for projection in select.selects if projection.alias}
        known = {name.lower(): name for _, columns in visible for name in columns.names}
        for node in select.walk(prune=lambda node: node is not select and isinstance(node, exp.Query)):
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.find_ancestor(exp.Lambda):
                continue
            first, *others = [part.name for part in node.parts]
            of_relation = [columns for alias, columns in visible if alias == first.lower()] if others else []
            if of_relation and of_relation[0].lacks(others[0]) and others[0].lower() not in _ALWAYS:
                self.missing.append(Missing(node.parts[1], others[0], of_relation[0].names, False))
            elif not of_relation and first.lower() not in known.keys() | aliases | _ALWAYS:
                self.missing.append(Missing(node.parts[0], first, tuple(known.values()), False))


def _renamed(relation: Node, columns: Columns) -> Columns:
    """The columns under the names given by AS t (a, b)."""
    alias = relation.args.get("alias")
    names = tuple(column.name for column in alias.columns) if alias is not None else ()
    return Columns(names, True) if names else columns


def argument(node: Node, name: str) -> Node | None:
    """An argument of a node; newer versions of sqlglot append an underscore to Python keywords: `from_`."""
    return node.args.get(f"{name}_") or node.args.get(name)


def _direct_queries(select: exp.Select) -> Iterator[Node]:
    """Queries in expressions of this SELECT itself."""
    with_clause = argument(select, "with")
    for node in select.walk(
        prune=lambda node: node is with_clause or (node is not select and isinstance(node, exp.Query))
    ):
        if node is not select and isinstance(node, exp.Query):
            yield node


def _lateral(lateral: Node) -> _Relation:
    alias = lateral.args.get("alias")
    names = tuple(column.name for column in alias.columns) if alias is not None else ()
    return lateral.alias.lower(), Columns(names, bool(names))


def _projected(select: exp.Select, relations: tuple[_Relation, ...]) -> Columns:
    return _together([_result(projection, relations) for projection in select.selects])


def _together(parts: list[Columns]) -> Columns:
    """The columns of all parts; a name that several have has no type."""
    names = [name for columns in parts for name in columns.names]
    counts = Counter(name.lower() for name in names)
    types = {name: kind for columns in parts for name, kind in columns.types.items() if counts[name] == 1}
    return Columns(tuple(dict.fromkeys(names)), all(columns.complete for columns in parts), types)


def _result(projection: Node, relations: tuple[_Relation, ...]) -> Columns:
    star = projection.this if isinstance(projection, exp.Column) else projection
    if isinstance(star, exp.Star):
        table = projection.table.lower() if isinstance(projection, exp.Column) else ""
        return _starred(star, [columns for alias, columns in relations if table in ("", alias)])
    if isinstance(projection, exp.Aliases):
        return Columns(tuple(identifier.name for identifier in projection.aliases), True)
    name = projection.alias or (projection.name if isinstance(projection, exp.Column | exp.Cast | exp.Dot) else "")
    return Columns((name,), True, _typed(name, projection, relations)) if name else Columns()


def _typed(name: str, projection: Node, relations: tuple[_Relation, ...]) -> dict[str, str]:
    """The type of a column that is passed on as it is, or cast."""
    node = projection.this if isinstance(projection, exp.Alias) else projection
    kind = ""
    if isinstance(node, exp.Cast):
        kind = str(node.to.sql("spark")).upper()
    elif isinstance(node, exp.Column) and len(node.parts) <= 2:
        *first, column = (part.name.lower() for part in node.parts)
        kind = _together([each for alias, each in relations if first in ([], [alias])]).type_of(column)
    found = re.match(r"\w+", kind)
    return {name.lower(): found[0]} if found else {}


def _starred(star: Node, relations: list[Columns]) -> Columns:
    without = {column.name.lower() for column in argument(star, "except") or ()}
    found = _together(relations)
    names = tuple(name for name in found.names if name.lower() not in without)
    types = {name: kind for name, kind in found.types.items() if name not in without}
    return Columns(names, bool(relations) and found.complete, types)


# --- what needs a state from batch to batch


def tables(query: Node) -> set[str]:
    return {table.name.lower() for table in query.find_all(exp.Table)}


def aggregates(query: Node, of: set[str]) -> Iterator[exp.Select]:
    """SELECTs that aggregate rows of these views."""
    for select in query.find_all(exp.Select):
        if tables(select) & of and (select.args.get("group") or _has_aggregate(select)):
            yield select


def _has_aggregate(select: exp.Select) -> bool:
    parts = [*select.selects, *([select.args["having"]] if select.args.get("having") else [])]
    return any(
        isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window)
        for part in parts
        for node in part.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window))
    )


def groups_by_time(select: exp.Select, column: str) -> bool:
    """True if groups can become final as time passes."""
    group = select.args.get("group")
    if group is None:
        return False
    if group.args.get("all") or any(isinstance(expression, exp.Literal) for expression in group.expressions):
        return True  # GROUP BY 1, GROUP BY ALL: not seen from here
    return any(
        (isinstance(node, exp.Anonymous) and str(node.this).lower() in TIME_WINDOWS)
        or (isinstance(node, exp.Column) and node.name.lower() in (column.lower(), *_ALWAYS))
        for node in group.walk()
    )
