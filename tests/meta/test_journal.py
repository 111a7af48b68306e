"""The journal cut and broken at every byte: a torn end is cut off, damage is refused and left alone."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkad.linux import allocate
from kafkad.meta.journal import MAGIC, Journal, JournalError

FRAMES = [b"snapshot " * 3, b"first", b"", b"second " * 9, b"last"]
HEAD = 12


def write(path: Path) -> list[int]:
    """The file with all frames, and the positions where one begins; the last one is the end."""
    journal = Journal.create(str(path), FRAMES[0])
    starts = [len(MAGIC), journal.size]
    for payload in FRAMES[1:]:
        journal.append(payload)
        starts.append(journal.size)
    journal.close()
    assert path.stat().st_size == starts[-1]
    return starts


def read(path: Path) -> tuple[list[bytes], int]:
    """Its payloads, and how many bytes of a torn end were cut off."""
    payloads: list[bytes] = []
    size = path.stat().st_size
    journal = Journal.open(str(path), payloads.append)
    torn = size - journal.size
    journal.append(b"more")
    journal.close()
    again: list[bytes] = []
    Journal.open(str(path), again.append).close()
    assert again == [*payloads, b"more"]
    return payloads, torn


def test_cut_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    starts = write(path)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        if size < starts[1]:
            with pytest.raises(JournalError, match=str(path)):
                read(path)
            assert path.read_bytes() == content[:size]
            continue
        whole = sum(1 for start in starts[1:] if start <= size)
        assert read(path) == (FRAMES[:whole], size - max(s for s in starts if s <= size))


def test_a_bit_flipped_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    starts = write(path)
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        if at >= starts[-2]:
            assert read(path) == (FRAMES[:-1], len(content) - starts[-2])
            continue
        with pytest.raises(JournalError, match=f"{path}.*(damaged)"):
            read(path)
        assert path.read_bytes() == damaged


def test_zeros_after_the_end_are_a_torn_write(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path)
    with path.open("ab") as f:
        f.write(bytes(100))
    assert read(path) == (FRAMES, 100)


def test_damage_names_the_position(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    starts = write(path)
    content = bytearray(path.read_bytes())
    content[starts[3] + HEAD + 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalError, match=f"{path} is damaged at byte {starts[3]} of {len(content)}"):
        read(path)


def test_a_frame_that_cannot_be_replayed_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path)

    def replay(payload: bytes) -> None:
        if payload == FRAMES[3]:
            raise ValueError("no such parent")

    with pytest.raises(JournalError, match="no such parent"):
        Journal.open(str(path), replay)


def test_replace_leaves_one_frame(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path)
    payloads: list[bytes] = []
    journal = Journal.open(str(path), payloads.append)
    journal.replace(b"all of it")
    journal.append(b"next")
    with pytest.raises(JournalError, match="in use"):
        Journal.open(str(path), payloads.append)
    journal.close()
    assert read(path) == ([b"all of it", b"next"], 0)


def test_half_a_new_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path)
    (tmp_path / "journal.new").write_bytes(b"half")
    journal = Journal.open(str(path), lambda payload: None)
    journal.replace(b"all")
    journal.close()
    assert read(path)[0] == [b"all"]


def is_refused(use: Callable[[], object]) -> None:
    with pytest.raises(JournalError, match="by another process, most likely another kafkad"):
        use()


def meanwhile(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Does it when the next one has opened a file, before it locks it."""
    flock = fcntl.flock

    def late(fd: int, how: int) -> None:
        monkeypatch.setattr("fcntl.flock", flock)
        what()
        flock(fd, how)

    monkeypatch.setattr("fcntl.flock", late)


def test_of_two_that_make_a_journal_one_is_refused(tmp_path: Path) -> None:
    """Also if it comes while the other's is not on the disk yet, or had seen none when there was none."""
    path = tmp_path / "journal"
    syncs: list[int] = []

    def sync(fd: int) -> None:
        syncs.append(fd)
        if len(syncs) == 1:
            is_refused(lambda: Journal.create(str(path), b"another"))

    journal = Journal.create(str(path), FRAMES[0], sync)
    journal.append(b"first")
    is_refused(lambda: Journal.create(str(path), b"another"))
    journal.append(b"second")
    journal.close()
    assert os.listdir(tmp_path) == ["journal"]
    assert read(path) == ([FRAMES[0], b"first", b"second"], 0)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_a_journal_that_gets_its_name_meanwhile_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, half: bool, ended: bool
) -> None:
    """The other one has what becomes the journal open, under its first name."""
    path = tmp_path / "journal"
    if half:
        (tmp_path / "journal.new").write_bytes(b"half of one, by a process that was killed")
    made: list[Journal] = []

    def make() -> None:
        made.append(Journal.create(str(path), FRAMES[0]))
        made[0].append(b"first")
        if ended:
            made[0].close()

    meanwhile(monkeypatch, make)
    is_refused(lambda: Journal.create(str(path), b"another"))
    if not ended:
        made[0].append(b"second")
        made[0].close()
    assert read(path) == ([FRAMES[0], b"first", *([] if ended else [b"second"])], 0)


def test_a_journal_that_is_replaced_before_it_is_locked_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is one of a file without a name: what is written there is lost."""
    path = tmp_path / "journal"
    journal = Journal.create(str(path), FRAMES[0])
    meanwhile(monkeypatch, lambda: journal.replace(b"all of it"))
    is_refused(lambda: Journal.open(str(path), lambda payload: None))
    journal.append(b"next")
    journal.close()
    assert read(path) == ([b"all of it", b"next"], 0)


@pytest.fixture
def reserving(tmp_path: Path) -> Path:
    """A directory whose file system can reserve blocks."""
    with (tmp_path / "probe").open("wb") as probe:
        if not allocate(probe.fileno(), 0, 1):
            pytest.skip("this file system reserves no blocks")
    return tmp_path


def reserved(path: Path) -> int:
    return path.stat().st_blocks * 512 - path.stat().st_size


@pytest.mark.parametrize("reopened", [False, True])
def test_others_cannot_take_all_of_the_disk(reserving: Path, *, reopened: bool) -> None:
    """The file has blocks beyond its end: fewer as it grows, then more again, also when it was cut or written anew."""
    path = reserving / "journal"
    journal = Journal.create(str(path), FRAMES[0])
    sizes = [reserved(path)]
    for _ in range(20):
        journal.append(bytes(100_000))
        if reopened:
            journal.close()
            journal = Journal.open(str(path), lambda payload: None)
        sizes.append(reserved(path))
    assert min(sizes) >= 1 << 19
    assert any(later < sooner for sooner, later in pairwise(sizes)), "it is asked for now and then"
    journal.replace(b"new")
    assert reserved(path) >= 1 << 19
    journal.replace(bytes(4 << 20))
    assert reserved(path) >= 2 << 20, "as much as all of it"
    journal.close()


def test_a_refused_write_gives_no_room_to_others(reserving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = reserving / "journal"
    journal = Journal.create(str(path), FRAMES[0])
    with monkeypatch.context() as full:

        def pwrite(fd: int, content: bytes, at: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr("os.pwrite", pwrite)
        with pytest.raises(OSError, match="No space"):
            journal.append(b"refused")
    assert reserved(path) >= 1 << 19
    journal.close()


def test_it_is_short_of_room_on_a_full_disk_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the file system has room but cannot reserve it."""
    room = [1 << 30]
    monkeypatch.setattr("kafkad.meta.journal.allocate", lambda fd, at, length: length <= 1 << 18)
    monkeypatch.setattr("os.fstatvfs", lambda fd: SimpleNamespace(f_bavail=room[0] // 4096, f_frsize=4096))
    path = tmp_path / "journal"
    journal = Journal.create(str(path), FRAMES[0])
    assert not journal.is_short
    room[0] = 0
    journal.append(b"the last that others left")
    assert journal.is_short
    journal.close()
    journal = Journal.open(str(path), lambda payload: None)
    assert journal.is_short
    room[0] = 1 << 20
    journal.look_for_room()
    assert not journal.is_short
    journal.close()


@pytest.mark.parametrize("what", ["os.fstat", "os.fstatvfs", "kafkad.meta.journal.allocate"])
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), ImportError("_ctypes")])
def test_what_is_on_the_disk_is_not_refused_for_want_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    """The next frame would be written behind one that nobody knows of."""
    path = tmp_path / "journal"
    journal = Journal.create(str(path), FRAMES[0])

    def refuse(*_: int) -> bool:
        raise error

    with monkeypatch.context() as refusing:
        refusing.setattr("kafkad.meta.journal.allocate", lambda fd, at, length: False)
        refusing.setattr("kafkad.meta.journal._RESERVE", 1 << 40)
        refusing.setattr(what, refuse)
        journal.append(b"first")
        assert journal.is_short
        assert journal.unknown_room is error
        assert journal.size == path.stat().st_size
        if what != "os.fstat":  # a new file is not looked at
            journal.replace(b"all")
            assert journal.is_short
            assert journal.size == path.stat().st_size
    journal.replace(b"all")
    journal.append(b"next")
    assert (journal.is_short, journal.unknown_room) == (False, None)
    journal.close()
    assert read(path) == ([b"all", b"next"], 0)


def test_without_a_descriptor_for_the_directory_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as nothing has changed, that is no reason to take no more writes."""
    path = tmp_path / "journal"
    journal = Journal.create(str(path), FRAMES[0])
    opened = os.open

    def refuse(where: str, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(where):
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(where, flags, mode)

    with monkeypatch.context() as refusing:
        refusing.setattr("os.open", refuse)
        with pytest.raises(OSError, match="Too many"):
            journal.replace(b"all")
    assert not journal.is_broken
    journal.append(b"first")
    journal.close()
    assert read(path) == ([FRAMES[0], b"first"], 0)


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from kafkad.meta.journal import Journal

journal = Journal.open(sys.argv[1], lambda payload: None)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    while True:
        os.dup(0)
except OSError:
    pass
for _ in range(3):
    journal.append(bytes(300_000))
assert not journal.is_short
"""


def test_room_is_kept_without_a_descriptor(reserving: Path) -> None:
    path = reserving / "journal"
    Journal.create(str(path), FRAMES[0]).close()
    subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS, str(path)], check=True)
    assert len(read(path)[0]) == 4
