"""Ways to spoil bytes, by dice: what comes out is the same in every run."""

from __future__ import annotations

import random

EDGES = (
    b"\0",
    b"\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f" + b"\xff" * 7,
    b"\x80" + b"\0" * 7,
    b"\xff" * 10,
)


def spoiled(raw: bytes, dice: random.Random, *, spare: int = 0) -> bytes:
    """A few changes behind the first `spare` bytes: bits, edges of numbers, cuts, things twice, swapped, gone."""
    out = bytearray(raw)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        if len(out) <= spare:
            break
        _spoil(out, dice, spare)
    return bytes(out)


def _spoil(out: bytearray, dice: random.Random, spare: int) -> None:
    at = dice.randrange(spare, len(out))
    size = dice.randrange(1, 17)
    match dice.randrange(7):
        case 0:
            del out[at:]
        case 1:
            out[at] ^= 1 << dice.randrange(8)
        case 2 | 3:
            edge = dice.choice(EDGES)
            out[at : at + len(edge)] = edge
        case 4:
            out[at:at] = out[at : at + size]
        case 5:
            del out[at : at + size]
        case _:
            out[at : at + size] = dice.randbytes(size)
