"""A simulated disk: real files, which outlive the processes that are killed, and what of them outlives a power cut."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from kafkad.log.checkpoint import HIGH_WATERMARKS, META_PROPERTIES, RECOVERY_POINTS, read_offsets
from kafkad.log.files import Files
from kafkad.log.lock import LOCK
from kafkad.names import TopicPartition
from kafkad.wire.records import CRC_AT, iter_batches
from tests.crash.power import Disk
from tests.sim.world import ProcessClock

CHECKPOINTS = (HIGH_WATERMARKS, RECOVERY_POINTS)


class SimFiles(Files):
    """The files of one machine, and the history of what was written and what was synced."""

    def __init__(self, directory: str, clock: ProcessClock) -> None:
        self._directory = directory
        self._clock = clock
        self._disk = Disk(Path(directory), [])
        self._syncs = count()

    # -- Files ---------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        existed = os.path.lexists(path)
        fd = os.open(path, flags, mode)
        if flags & os.O_CREAT and not existed:
            self._disk.play("create", path, os.fstat(fd).st_ino)
        elif flags & os.O_TRUNC:
            self._disk.play("truncate", os.fstat(fd).st_ino, 0)
        return fd

    def pwrite(self, fd: int, data: bytes | memoryview, at: int) -> int:  # type: ignore[override]
        written = os.pwrite(fd, data, at)
        self._disk.play("write", os.fstat(fd).st_ino, at, bytes(data[:written]))
        return written

    def truncate(self, fd: int, length: int) -> None:  # type: ignore[override]
        os.ftruncate(fd, length)
        self._disk.play("truncate", os.fstat(fd).st_ino, length)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        os.replace(source, target)
        self._disk.play("rename", source, target)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        os.unlink(path)
        self._disk.play("remove", path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:  # type: ignore[override]
        os.mkdir(path, mode)
        if path.startswith(self._directory + "/"):
            self._disk.play("mkdir", path, os.stat(path).st_ino)

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        os.rmdir(path)
        self._disk.play("remove", path)

    def sync(self, fd: int) -> None:  # type: ignore[override]
        """The real machine is not waited for."""
        inode, number = os.fstat(fd).st_ino, next(self._syncs)
        self._disk.play("sync", number, inode)
        self._disk.play("synced", number)
        self._disk.forget_history(inode)

    def listdir(self, path: str) -> list[str]:  # type: ignore[override]
        return sorted(os.listdir(path))

    def list_files(self, path: str) -> list[str]:
        return sorted(super().list_files(path))

    def changed_ms(self, path: str) -> int:
        return self._clock.now_ms()

    def allocate(self, fd: int, at: int, length: int) -> bool:
        return False

    def begin_to_write_out(self, path: str) -> None:
        pass

    # -- faults, while no process uses it ------------------------------------------------------------------------------

    def killed(self) -> None:
        """The kernel lets go of the lock."""
        with suppress(FileNotFoundError):
            self.unlink(os.path.join(self._directory, LOCK))

    def lose_power(self, chance: Random, kept: float) -> None:
        """Of what was not synced any part may be there, `kept` of it on average."""
        image = Path(self._directory + ".image")
        self._disk.image(image, chance, kept)
        shutil.rmtree(self._directory)
        image.rename(self._directory)
        self._disk = Disk(Path(self._directory), [])
        self._read_again(self._directory)
        with suppress(FileNotFoundError):
            self.unlink(os.path.join(self._directory, LOCK))

    def replace(self) -> None:
        """By a new disk, on which somebody has written the ids and nothing else."""
        properties = os.path.join(self._directory, META_PROPERTIES)
        ids = Path(properties).read_bytes()
        shutil.rmtree(self._directory)
        os.mkdir(self._directory)
        Path(properties).write_bytes(ids)
        self._disk = Disk(Path(self._directory), [])
        self._read_again(self._directory)

    def _read_again(self, directory: str) -> None:
        """All that is there is on the disk."""
        play = self._disk.play
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            inode = os.stat(path).st_ino
            if os.path.isdir(path):
                play("mkdir", path, inode)
                self._read_again(path)
            else:
                play("create", path, inode)
                play("write", inode, 0, Path(path).read_bytes())
            self._now_durable(inode)
        self._now_durable(os.stat(directory).st_ino)

    def _now_durable(self, inode: int) -> None:
        number = next(self._syncs)
        self._disk.play("sync", number, inode)
        self._disk.play("synced", number)

    def flip_a_bit(self, chance: Random, directory: str) -> int:
        """In some batch of a partition, where its checksum tells; the offset of the batch, -1 if there is none."""
        paths = [os.path.join(directory, name) for name in self.listdir(directory) if name.endswith(".log")]
        path = chance.choice(paths)
        view = memoryview(Path(path).read_bytes())
        batches = list(iter_batches(view))
        if not batches:
            return -1
        begin, header = chance.choice(batches)
        at = begin + chance.randrange(CRC_AT, header.size)
        self._change(path, lambda data: data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        return header.base_offset

    def cut_below_watermark(self, chance: Random, directory: str) -> int:
        """Takes away some of what was committed and not flushed; the offset where the log ends, -1 if all stays."""
        topic, _, partition = os.path.basename(directory).rpartition("-")
        tp = TopicPartition(topic, int(partition))
        flushed, watermark = (
            read_offsets(os.path.join(self._directory, name), self).get(tp, 0)
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS)
        )
        path = max(os.path.join(directory, name) for name in self.listdir(directory) if name.endswith(".log"))
        batches = iter_batches(memoryview(Path(path).read_bytes()))
        ends = [(at, header) for at, header in batches if flushed <= header.base_offset < watermark]
        if not ends:
            return -1
        at, header = chance.choice(ends[-5:])
        self._change(path, lambda data: data[: at + chance.choice((0, 7, 30))])
        return header.base_offset

    def damage_a_checkpoint(self, chance: Random) -> str | None:
        """Half of it is other than it was; its name, None where there is none yet."""
        name = chance.choice(CHECKPOINTS)
        path = os.path.join(self._directory, name)
        if not os.path.exists(path):
            return None
        self._change(path, lambda data: data[: len(data) // 2] + chance.randbytes(8))
        return name

    def _change(self, path: str, changed: Any) -> None:
        file = self.open_log_file(path)
        data = changed(Path(path).read_bytes())
        self.truncate(file.fd, 0)
        self.write_all(file.fd, data, 0)
        self.sync(file.fd)
