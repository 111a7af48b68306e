"""`consume --group`: reads what the group gives it, and commits what was printed.

The search ends a partition at a damaged batch: to go on would commit past records that nobody has seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.records.assignors import ASSIGNORS, assignor
from kctl.records.bounds import FIRST, LAST, Span
from kctl.records.following import Found, Growth, Unreached
from kctl.records.membership import Evicted, Member
from kctl.records.offset_ranges import Range, spans
from kctl.records.searching import Chunk, Search
from kctl.texts.output import note, render_error
from kctl.texts.spelling import command, spelled

_COMMIT_SECONDS = 5.0
_POLL_SECONDS = 0.5


class Membership(NamedTuple):
    group: str
    assignor: str
    instance: str | None


def read_as_member(
    session: Session, search: Search, growth: Growth, limits: Range, membership: Membership
) -> Generator[Chunk]:
    """Reads each of its partitions up to its end at the time of assignment; with --follow, for ever."""
    chosen = assignor(membership.assignor)
    if chosen is None:
        what = f'there is no assignor "{membership.assignor}"'
        raise KctlError(what, exit_code=Exit.USAGE, hints=(f"there are: {', '.join(ASSIGNORS)}, module:callable",))
    member = Member(session, membership.group, growth.counts, chosen, membership.instance)
    share = _Share(session, search, growth, limits, member)
    try:
        yield from share.chunks()
    except BaseException as error:  # Ctrl-C, or a reader that went away, ends it too
        if (lost := share.finish()) and lost.what != str(error):
            render_error(lost, session.settings, sys.stderr)
        raise
    if lost := share.finish():
        raise lost


class _Share:
    """One member's share of the topics, and how far it has read."""

    def __init__(self, session: Session, search: Search, growth: Growth, limits: Range, member: Member) -> None:
        self._session = session
        self._search = search
        self._growth = growth
        self._limits = limits
        self._member = member
        self._reader = search.reader({}, few=False)
        self._printed: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, Span] = {}
        self._commit_at = 0.0
        self._given = False
        self._unreached = Unreached(self._found, search.failed, search.tell)

    def chunks(self) -> Generator[Chunk]:
        while not (self._given and not self._member.must_join and self._reader.done and not self._limits.follow):
            try:
                if self._member.must_join:
                    self._join()
                self._member.beat()
                if self._limits.follow and self._growth.look(self._member.foreign):
                    self._member.follow(self._growth.counts)
                if reached := self._unreached():
                    self._ends |= reached
                    self._reader.add(reached)
                yield from self._read()
                if time.monotonic() >= self._commit_at:
                    self._commit()
            except Evicted as why:
                note(self._session.settings, f"the group went on without this member ({why}): joining again")
                self._printed.clear()
                self._ends.clear()
                self._member.lose_everything()
                self._reader.keep(())
            if self._search.enough or (self._reader.failed and self._reader.done):
                return

    def _read(self) -> Generator[Chunk]:
        for fetched in self._reader.poll(_POLL_SECONDS):
            if fetched.where not in self._ends:
                continue  # given to another member since it was asked for
            chunk = self._search.chunk(self._reader, fetched)
            yield chunk
            cut = self._search.enough and chunk.records
            self._printed[fetched.where] = chunk.records[-1].offset + 1 if cut else fetched.next
            if self._search.enough:
                return
        if self._reader.done:
            time.sleep(0.05 if self._limits.follow else 0)
        self._search.show()

    def _join(self) -> None:
        self._commit()
        if not self._member.cooperative:  # all give up everything before it is shared out again
            self._reader.keep(())
            self._ends.clear()
        self._member.join()
        owned = set(self._member.owned)
        self._ends = {where: span for where, span in self._ends.items() if where in owned}
        self._printed = {where: offset for where, offset in self._printed.items() if where in owned}
        added = self._spans([where for where in self._member.owned if where not in self._ends])
        self._ends |= added
        self._printed = {where: offset for where, offset in self._printed.items() if not self._is_passed(where, offset)}
        self._reader.keep(owned)
        self._reader.add({where: span for where, span in added.items() if where not in self._search.failed})
        if self._limits.follow:
            self._unreached.look_for(self._member.owned)
        self._commit_at = time.monotonic() + _COMMIT_SECONDS
        self._given = True

    def _is_passed(self, where: TopicPartition, offset: int) -> bool:
        """True if another member has committed more in the meantime."""
        return where in self._ends and offset < self._ends[where].start

    def _spans(self, added: list[TopicPartition]) -> dict[TopicPartition, Span]:
        """The spans to read: from the group's commit, or --from where there is none; new partitions from the start."""
        if not added:
            return {}
        found, failed = self._found(added)
        self._search.failed |= failed
        return found

    def _found(self, added: list[TopicPartition]) -> Found:
        new = [where for where in added if self._growth.is_new(where)]
        found, failed = spans(self._session, [where for where in added if where not in new], self._limits)
        from_beginning, unknown = spans(self._session, new, self._limits._replace(start=FIRST))
        found |= from_beginning
        failed |= unknown
        commits = self._member.committed(added)
        if self._limits.stop == LAST and not self._limits.follow:
            for where, span in found.items():
                if commits.get(where, 0) > span.end:
                    what = f"{where}: the group has committed {commits[where]}, beyond the end {span.end}"
                    move = spelled(self._session.settings, command("groups reset-offsets", self._member.group))
                    self._search.tell(f"{what}; {move} moves it")
        starts = {
            where: max(commits.get(where, span.start), self._printed.get(where, 0)) for where, span in found.items()
        }
        return {where: Span(starts[where], span.end) for where, span in found.items()}, failed

    def _commit(self) -> None:
        self._commit_at = time.monotonic() + _COMMIT_SECONDS
        if self._printed and self._member.commit(self._printed):
            self._printed.clear()

    def finish(self) -> KctlError | None:
        """Leaves the group; the error, if the last offsets could not be committed before."""
        try:
            self._commit()
        except Evicted:
            return KctlError("the group went on without this member: its last offsets are not committed")
        except KctlError as error:
            return error
        finally:
            self._member.leave()
            self._search.done_with(self._reader)
        return KctlError("the group rebalances: its last offsets are not committed") if self._printed else None
