"""The meaning of findings: what a broker does about one at its next start, and what is safe to do. Pure.

Both brokers check after a stop that was not clean only what is not below the recovery point, and then from the
beginning of the segment that holds it. Kafka cuts the log at the first thing that is wrong there. kafkad does so only
in the tail that may have been half written, and keeps everything that was whole before, around the damage.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkad.log.names import Kind


class Start(NamedTuple):
    """The conditions of the next start: `clean` says whether the broker was stopped cleanly, `in_use`
    that it is still running: then it is the start after it was killed."""

    clean: bool
    in_use: bool
    recovery_point: int
    start_offset: int
    """Records below it are deleted, though their segments may still be there."""

    def recovers(self, following: int | None) -> bool:
        """True if the start checks a segment; `following` is where the next segment begins."""
        return not self.clean and (following is None or following > self.recovery_point)


class Verdict(NamedTuple):
    at_start: str
    action: str


_REBUILT = "with the broker stopped, delete it: it is rebuilt from the log at the next start"
_IF_IN_SYNC = "if another replica is in sync, stop the broker and move the partition's directory away: it is copied"
_COPIED = f"{_IF_IN_SYNC}; else leave it: kafkad serves the rest, and groups reset-offsets passes over what is broken"
_NOTHING = "none"
_UNSEEN = "nothing: after a clean stop nobody looks; who reads there gets an error"
_AT_NEXT_START = "none: the next start does it"


def of_log(offset: int, following: int | None, start: Start) -> Verdict:
    """Damage in a `.log` file from `offset` on."""
    last = following is None
    if start.clean:
        return Verdict(_UNSEEN, _COPIED)
    if not start.recovers(following):
        below = f"nothing: it is below the recovery point, {start.recovery_point}; who reads there gets an error"
        return Verdict(below, _COPIED)
    if last and offset >= start.recovery_point:
        return Verdict(f"the log is cut to end at {offset}", _AT_NEXT_START)
    behind = "all that follows" if last else "all later segments"
    return Verdict(f"Kafka cuts the log to end at {offset} and deletes {behind}; kafkad keeps them", _COPIED)


def of_index(suffix: str, following: int | None, start: Start, *, missing: bool) -> Verdict:
    if missing:
        return Verdict("it is rebuilt from the log", _AT_NEXT_START)
    if start.recovers(following):
        return Verdict("it is rebuilt from the log, as all of this segment is checked", _AT_NEXT_START)
    if suffix == ".txnindex":
        return Verdict(
            "nothing", "kafkad rebuilds a broken one at its use; for Kafka, stop it and delete the .index too"
        )
    return Verdict("nothing: this segment is not checked", _REBUILT)


def of_snapshot() -> Verdict:
    return Verdict("it is deleted, and the producers are read from the log", _AT_NEXT_START)


def of_missing_snapshot(start: Start, *, none_left: bool) -> Verdict:
    if start.clean and none_left:
        forgotten = "the producers are forgotten: a batch that one of them sends again may be written twice"
        return Verdict(forgotten, "none: it is so once, at the next start")
    return Verdict("the producers are read from the log", _AT_NEXT_START)


def of_epochs() -> Verdict:
    return Verdict("kafkad rebuilds a broken one", f"for Kafka: {_IF_IN_SYNC}")


NO_SEGMENT = Verdict("an empty log is begun", "if another replica has records, that one must lead; else none")
NO_LOG_FOR_INDEX = Verdict("it is deleted", _AT_NEXT_START)
UNREADABLE = Verdict("its log directory goes offline, or the broker does not start", "mend access or the disk")
BROKEN_RECORDS = Verdict("nothing: its checksum is right; who reads it gets an error", _COPIED)
NO_META_PROPERTIES = Verdict("one is written", "none, if this is not the directory of a broker")


def broken_checkpoint(remedy: str) -> Verdict:
    return Verdict("kafkad does not start", remedy)


_UNFINISHED = {
    ".cleaned": Verdict("it is deleted: a compaction was not finished", _AT_NEXT_START),
    ".swap": Verdict("it takes the place of what it was made from", _AT_NEXT_START),
    ".tmp": Verdict("nothing", "with the broker stopped, delete it"),
}


def unfinished(name: str) -> Verdict | None:
    """The verdict on a file that a broker was still working on, by its name."""
    return next((verdict for suffix, verdict in _UNFINISHED.items() if name.endswith(suffix)), None)


PUT_ASIDE = {
    Kind.FUTURE: (
        "a copy that is being made, to move the partition here",
        Verdict("the copy goes on", "none: a running broker completes it"),
    ),
    Kind.STRAY: (
        "put aside by a broker that did not know the partition",
        Verdict("nothing", "delete it when nobody misses the data"),
    ),
}

NOT_THERE = Verdict("the entry is forgotten", "none, if the partition was deleted or moved; else restore it")
PAST_THE_END = Verdict(
    "it is cut back to the end of the log", "if another replica has what is lost, that one must lead; else none"
)
NO_PARTITION = Verdict("Kafka does not start; kafkad passes it over", "move it to another place")
OTHER_CLUSTER = Verdict("a broker that has both does not start", "give a broker only directories of one cluster.id")
TWICE = Verdict("neither Kafka nor kafkad starts", "with the broker stopped, move away the one that lags behind")


def of_start_offset(offset: int) -> Verdict:
    return Verdict(f"the log goes on at {offset}, and what is there is given up", PAST_THE_END.action)
