"""The vote on a group's protocol: one vote for each member; ties are broken in the order of Kafka's hash map.

Kafka counts in an immutable map of Scala and takes the first of the most. That map is a tree of 32 branches by bits of
the key's hash, the lowest first: what is alone in its branch comes first, then what shares one. So members with
opposite preferences get the same protocol from both, whoever of them came first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kafkad.names import java_hash

_BITS = 5
_BRANCH = (1 << _BITS) - 1
_WORD = 0xFFFFFFFF


def most_voted(votes: Iterable[str]) -> str:
    counts = Counter(votes)
    return max(_in_order([(name, _improved(java_hash(name))) for name in counts]), key=counts.__getitem__)


def _in_order(hashed: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Names with what is left of their hashes; the same hash is met by no two names of protocols that exist."""
    if len({left for _, left in hashed}) == 1:
        yield from (name for name, _ in hashed)
        return
    branches: dict[int, list[tuple[str, int]]] = {}
    for name, left in sorted(hashed, key=lambda each: each[1] & _BRANCH):
        branches.setdefault(left & _BRANCH, []).append((name, left >> _BITS))
    for branch in sorted(branches.values(), key=lambda each: len(each) > 1):
        yield from _in_order(branch)


def _improved(value: int) -> int:
    """As Scala spreads the hashes that Java gives it."""
    value = (value + ~(value << 9)) & _WORD
    value ^= value >> 14
    value = (value + (value << 4)) & _WORD
    return value ^ (value >> 10)
