"""Regular expressions that clients send, matched in time that grows with the text alone.

Python's own go back and forth in the text, which a pattern can be made to do for ever. These are followed in all their
ways at once, as the RE2 syntax of Kafka's allows: no references back, no looking around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkad.turns import Pieces, at_once

_MOST_STATES = 2_000
_MOST_STEPS_KEPT = 5_000
_LONGEST = 1_000
_DEEPEST = 50
"""Groups within groups: each takes several of Python's calls."""
_CHARACTERS_AT_ONCE = 500

Accepts = Callable[[str], bool]
"""Whether a character will do."""

_CLASSES: dict[str, Accepts] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in "\t\n\f\r ",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "v": "\v"}
_START, _END = "^", "$"


class PatternError(ValueError):
    """It is no regular expression, or not one that can be followed in one go."""


class _State(NamedTuple):
    """Leads to `out` on a character that `accepts`, or where `anchor` holds, or else without any."""

    out: tuple[int, ...]
    accepts: Accepts | None = None
    anchor: str = ""


class _Part(NamedTuple):
    """A piece of the machine: where it begins, and the state that follows when it is through, still open."""

    first: int
    last: int


class Pattern:
    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise PatternError(f"a pattern of {len(text)} characters, more than {_LONGEST}")
        self._text = text
        self._at = 0
        self._depth = 0
        self._states: list[_State] = []
        whole = self._alternatives()
        if self._at < len(text):
            raise PatternError(f"a ) too many at {self._at} of {text!r}")
        self._final = whole.last
        self._begin = whole.first
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """The text as a whole."""
        return at_once(self.matches_in_pieces(text))

    def matches_in_pieces(self, text: str) -> Pieces[bool]:
        """The same, where texts may be long."""
        steps = self._steps
        now = self._closure({self._begin}, at_start=True, at_end=not text)
        last = len(text) - 1
        for place, character in enumerate(text):
            if place == last:
                return self._final in self._step(now, character, at_end=True)
            key = now, character
            following = steps.get(key)
            if following is None:
                yield
                following = self._step(now, character, at_end=False)
                if len(steps) >= _MOST_STEPS_KEPT:
                    steps.clear()
                steps[key] = following
            elif not place % _CHARACTERS_AT_ONCE:
                yield
            now = following
            if not now:
                return False
        return self._final in now

    def _step(self, states: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        reached: set[int] = set()
        for number in states:
            state = self._states[number]
            if state.accepts is not None and state.accepts(character):
                reached.update(state.out)
        return self._closure(reached, at_start=False, at_end=at_end)

    def _closure(self, states: set[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """With all that is reached without a character."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            if state.accepts is None and _holds(state.anchor, at_start, at_end):
                waiting += state.out
        return frozenset(found)

    # Reading a pattern

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        first = self._add(_State(tuple(part.first for part in parts)))
        last = self._add(_State(()))
        for part in parts:
            self._connect(part.last, last)
        return _Part(first, last)

    def _sequence(self) -> _Part:
        first = last = self._add(_State(()))
        while self._peek() not in ("", "|", ")"):
            part = self._repeated()
            self._connect(last, part.first)
            last = part.last
        return _Part(first, last)

    def _repeated(self) -> _Part:
        begin = self._at
        part = self._one()
        count = self._count()
        if count is None:
            return part
        least, most = count
        end = self._at
        first = last = self._add(_State(()))
        for number in range(max(least, 1 if most is None else most)):
            if number:
                self._at = begin
                part = self._one()
            self._connect(last, part.first)
            if number >= least:
                self._skip(last, part.last)
            last = part.last
        self._at = end
        if most is None:
            if not least:
                self._skip(first, last)
            self._connect(last, part.first)
            after = self._add(_State(()))
            self._connect(last, after)
            last = after
        return _Part(first, last)

    def _count(self) -> tuple[int, int | None] | None:
        """How often: at least, and at most."""
        kind = self._peek()
        if kind in ("*", "+", "?"):
            self._at += 1
            found: tuple[int, int | None] = {"*": (0, None), "+": (1, None), "?": (0, 1)}[kind]
        elif kind == "{" and (bounds := self._bounds()) is not None:
            found = bounds
        else:
            return None
        if self._peek() == "?":  # it makes no difference which way is tried first
            self._at += 1
        if self._peek() in ("*", "+", "?"):
            raise PatternError(f"{self._peek()} repeats nothing at {self._at} of {self._text!r}")
        return found

    def _bounds(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if not least.isdecimal() or not (most.isdecimal() or not most):
            return None  # a brace like any other character
        found = int(least), (int(most) if most else None) if comma else int(least)
        if max(found[0], found[1] or 0) > _LONGEST or (found[1] is not None and found[1] < found[0]):
            raise PatternError(f"cannot repeat so often: {self._text[self._at : end + 1]}")
        self._at = end + 1
        return found

    def _one(self) -> _Part:
        character = self._next()
        if character == "(":
            return self._group()
        if character in "*+?":
            raise PatternError(f"{character} repeats nothing at {self._at - 1} of {self._text!r}")
        if character in (_START, _END):
            return self._state(anchor=character)
        if character == ".":
            return self._state(lambda c: c != "\n")
        if character == "[":
            return self._state(self._set())
        if character == "\\":
            return self._state(self._escaped())
        return self._state(character.__eq__)

    def _group(self) -> _Part:
        if self._peek() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise PatternError(f"a group that is not known at {self._at} of {self._text!r}")
            self._at += 2
        self._depth += 1
        if self._depth > _DEEPEST:
            raise PatternError(f"more than {_DEEPEST} groups within one another")
        part = self._alternatives()
        self._depth -= 1
        if self._next() != ")":
            raise PatternError(f"a ) is missing in {self._text!r}")
        return part

    def _set(self) -> Accepts:
        negated = self._peek() == "^"
        self._at += negated
        members: list[Accepts] = []
        first = True
        while first or self._peek() != "]":
            first = False
            members.append(self._member())
        self._at += 1
        return lambda c: any(accepts(c) for accepts in members) != negated

    def _member(self) -> Accepts:
        low = self._next()
        if low == "\\":
            if self._peek().lower() in _CLASSES:
                return self._escaped()
            low = self._literal()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return low.__eq__
        self._at += 1
        high = self._next()
        if high == "\\":
            high = self._literal()
        if high < low:
            raise PatternError(f"a range that ends before it begins: {low}-{high}")
        return lambda c: low <= c <= high

    def _escaped(self) -> Accepts:
        kind = self._peek()
        accepts = _CLASSES.get(kind.lower())
        if accepts is None or not kind:
            return self._literal().__eq__
        self._at += 1
        return accepts if kind.islower() else lambda c: not accepts(c)

    def _literal(self) -> str:
        """The character behind a backslash."""
        character = self._next()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise PatternError(f"\\{character} is not known")
        return character

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise PatternError(f"{self._text!r} ends too early")
        self._at += 1
        return character

    # The machine

    def _state(self, accepts: Accepts | None = None, anchor: str = "") -> _Part:
        last = self._add(_State(()))
        return _Part(self._add(_State((last,), accepts, anchor)), last)

    def _add(self, state: _State) -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError("a pattern that says too much")
        self._states.append(state)
        return len(self._states) - 1

    def _connect(self, last: int, first: int) -> None:
        state = self._states[last]
        self._states[last] = state._replace(out=(*state.out, first))

    _skip = _connect


def _holds(anchor: str, at_start: bool, at_end: bool) -> bool:
    return not anchor or (at_start if anchor == _START else at_end)
