"""Whether the disks know what has been deleted: until then a power cut would bring it back, under its old name."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from kafkad.errors import StorageError
from kafkad.log.directories import LogDirectory
from kafkad.log.manager import LogManager
from kafkad.names import TopicPartition
from kafkad.replica.prompt_disks import PromptDisks


class PutAwayLogs:
    """What is in `LogDirectory.put_away`, or was in there until its disk was asked."""

    def __init__(self, logs: LogManager, disks: PromptDisks) -> None:
        self._logs = logs
        self._disks = disks
        self._asked: dict[LogDirectory, set[TopicPartition]] = {}
        """What disks say that they know once they answer."""
        self._refused: set[TopicPartition] = set()
        """What the controller asks for again, for not all disks knew it: they have been asked already."""

    def mark_places(self, tp: TopicPartition) -> Collection[LogDirectory]:
        """Where a disk may not know that a partition is gone. One that is nowhere may have been anywhere, and is marked
        as put away there."""
        places = [directory for directory in self._logs.live if self._may_return(tp, directory)]
        if not places and tp not in self._refused:
            places = self._logs.live
            for directory in places:
                directory.put_away.add(tp)
        return places

    def _may_return(self, tp: TopicPartition, directory: LogDirectory) -> bool:
        return tp in directory.put_away or tp in self._asked.get(directory, ())

    async def have_known(self, directories: Iterable[LogDirectory]) -> None:
        """Those that take longer than others can wait are not waited for."""
        asked = [directory for directory in directories if not self._disks.hangs(directory)]
        for directory in asked:
            self._disks.begin(directory, directory.sync_names, partial(self._answered, directory))
            self._asked[directory], directory.put_away = directory.put_away, set()
        await self._disks.wait(asked)

    def _answered(self, directory: LogDirectory, error: StorageError | None) -> None:
        gone = self._asked.pop(directory)
        if error is not None:
            directory.put_away |= gone

    def is_known(self, tp: TopicPartition, places: Collection[LogDirectory]) -> bool:
        """Whether all of `places` know it. To be asked once, by who tells the controller."""
        if any(self._may_return(tp, directory) for directory in places):
            self._refused.add(tp)
            return False
        self._refused.discard(tp)
        return True
