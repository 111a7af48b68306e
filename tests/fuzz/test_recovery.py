"""Log directories with something wrong in them: what can be served is, what cannot is left alone and reported."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.deletion import delete_old_segments
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.time_search import max_timestamp, offset_for_timestamp
from kafkad.log.transactions import aborted_transactions
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.wire.records import Record, RecordsError, build_batch, crc_matches, iter_batches, read_header
from tests.fakes import FakeClock, read_slice
from tests.fuzz.damage import spoiled
from tests.log.conftest import searched

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
CONFIG = LogConfig(segment_bytes=8192, index_interval_bytes=512, segment_index_bytes=1 << 16)
VICTIMS = sorted(path for path in (GOLDEN / "main").iterdir() if path.is_dir())
VICTIMS += sorted((GOLDEN / "old-formats").glob("*-0"))
BYSTANDER = TopicPartition("murmur", 0)
CHECKPOINTS = ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
BLOCKS = [
    0,
    *(pytest.param(block, marks=pytest.mark.slow if block < 2 else pytest.mark.long) for block in range(1, 20)),
]
BLOCK = 120
MOST_BYTES = 16 << 20
LAST_OFFSET = 2**63 - 1


class Unsynced(Files):
    """Nothing here has to survive the machine."""

    def sync(self, fd: int) -> None:  # type: ignore[override]
        pass

    def sync_directory(self, path: str) -> None:
        pass


class Scene:
    """A log directory with two partitions of real Kafka; dice say which, and what happens to one of them."""

    def __init__(self, home: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.home = home
        self.directory = home / "first"
        self.directory.mkdir()
        source = self.dice.choice(VICTIMS)
        for path in {source, GOLDEN / "main" / "murmur-0"}:
            shutil.copytree(path, self.directory / path.name, copy_function=shutil.copyfile)
        self.victim = self.directory / source.name
        topic, _, number = source.name.rpartition("-")
        self.partition = TopicPartition(topic, int(number))
        self.checked_whole = self._checkpoints(source.parent)
        self.checkpoints_touched = False
        self.happened: list[str] = []

    def _checkpoints(self, source: Path) -> bool:
        """Cleanly stopped, or killed: then with the recovery points of the clean stop, or with none. True for these."""
        kind = self.dice.randrange(3)
        for name in (*CHECKPOINTS, ".kafka_cleanshutdown"):
            if (source / name).exists() and not (kind and name == ".kafka_cleanshutdown"):
                shutil.copyfile(source / name, self.directory / name)
        if kind == 2:
            (self.directory / CHECKPOINTS[0]).unlink(missing_ok=True)
        return kind == 2

    def spoil(self) -> None:
        if self.dice.randrange(5) == 0:
            self.checkpoints_touched = True
            files = sorted(
                path for path in self.directory.iterdir() if path.is_file() and path.name != "meta.properties"
            )
            self._change(self.dice.choice(files or [self.directory / CHECKPOINTS[0]]))
        for _ in range(self.dice.choice((0, 1, 1, 2, 3, 5))):
            files = sorted(path for path in self.victim.iterdir() if path.is_file())
            if files:
                self._change(self.dice.choice(files))

    def _change(self, path: Path) -> None:
        change = self.dice.choice(CHANGES)
        if path.exists():
            self.happened.append(f"{change.__name__} {path.name}")
            change(path, self.dice)

    def contents(self) -> dict[str, bytes]:
        """Of all files but those that were to be removed anyhow."""
        files = sorted(path for path in self.victim.iterdir() if path.suffix not in {".cleaned", ".deleted"})
        return {path.name: path.read_bytes() for path in files}

    def load(self) -> LogManager:
        return managed(self.directory, self.home / "second")


def spoil(path: Path, dice: random.Random) -> None:
    path.write_bytes(spoiled(path.read_bytes(), dice))


def flip(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)


def cut(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data) + 1)])


def empty(path: Path, dice: random.Random) -> None:
    path.write_bytes(b"")


def zero(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + dice.choice((8, 100, 4096, 1 << 20)))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def preallocate(path: Path, dice: random.Random) -> None:
    """As the indexes are after a kill."""
    path.write_bytes(path.read_bytes() + bytes(dice.choice((1, 8, 12, 24, 1000, 65536))))


def garble(path: Path, dice: random.Random) -> None:
    path.write_bytes(dice.randbytes(dice.randrange(3000)))


def lengthen(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randrange(1, 300)))


def lose(path: Path, dice: random.Random) -> None:
    path.unlink()


def confuse(path: Path, dice: random.Random) -> None:
    """It has the content of another file of the directory, and that one its."""
    other = dice.choice(sorted(path for path in path.parent.iterdir() if path.is_file()))
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)


def repeat(path: Path, dice: random.Random) -> None:
    """A part of it comes twice."""
    data = path.read_bytes()
    path.write_bytes(data + data[dice.randrange(len(data) + 1) :])


def misname(path: Path, dice: random.Random) -> None:
    """It is called as if it began elsewhere, or is nothing we know."""
    stem = dice.choice(("99999999999999999999", "00000000000000000001", f"{2**63 - 1:020d}", "x", "0" * 19, "²" * 20))
    path.rename(path.with_name(stem + path.suffix))


def leave_over(path: Path, dice: random.Random) -> None:
    shutil.copyfile(path, f"{path}{dice.choice(('.swap', '.cleaned', '.deleted', '.tmp'))}")


def turn_over(path: Path, dice: random.Random) -> None:
    """Renames a file as if an interrupted change had left it."""
    path.rename(f"{path}{dice.choice(('.swap', '.cleaned', '.deleted'))}")


Change = Callable[[Path, random.Random], None]
CHANGES: list[Change] = [spoil, spoil, flip, flip, cut, cut, empty, zero, preallocate, garble, lengthen, lose]
CHANGES += [confuse, repeat, misname, leave_over, turn_over]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_partition_in_any_state(tmp_path: Path, block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        home = tmp_path / str(seed)
        home.mkdir()
        scene = Scene(home, seed)
        scene.spoil()
        print(seed, scene.partition, "all is checked" if scene.checked_whole else "", *scene.happened, sep="; ")
        load_and_use(scene)
        shutil.rmtree(home)


def load_and_use(scene: Scene) -> None:
    before = scene.contents()
    manager = scene.load()
    log = manager.get(scene.partition)
    if log is None:
        offline = manager.directories[0].failure is not None
        assert offline or manager.broken[scene.partition].path == str(scene.victim)
        assert scene.contents() == before
        if offline:
            return
    else:
        use(log, scene.dice, whole=scene.checked_whole)
    bystander = manager.get(BYSTANDER)
    if scene.partition != BYSTANDER:
        assert bystander is not None
        batches = served(bystander, whole=True)
        assert batches == [16, 21] or scene.checkpoints_touched
    manager.close({})
    again = scene.load()
    assert (scene.partition in again.logs) == (log is not None)
    log = again.get(scene.partition)
    if log is not None:
        served(log, whole=False)
    again.close({})


def use(log: Log, dice: random.Random, *, whole: bool) -> None:
    """Ask everything that a broker asks of a log, then write to it."""
    assert 0 <= log.start_offset <= log.end_offset
    served(log, whole=whole)
    offsets = [-1, 0, log.start_offset, log.end_offset, LAST_OFFSET]
    offsets += [dice.randint(log.start_offset, log.end_offset) for _ in range(5)]
    for offset in offsets:
        ask(log, offset, dice)
    for timestamp in (-1, 0, 1_700_000_000_000, LAST_OFFSET):
        with suppress(KafkaError):
            searched(offset_for_timestamp(log, timestamp))
    with suppress(KafkaError):
        searched(max_timestamp(log))
    base = log.end_offset
    batch = memoryview(build_batch([Record(0, 1_700_000_000_000, b"key", b"value")]))
    assert log.append(batch, 0, len(batch), read_header(batch, 0), 1 << 20) == base
    assert served(log, whole=whole, start=base) == [base]
    delete_old_segments(log, 1_700_000_000_000)
    if dice.randrange(3) == 0:
        try:
            truncate_to(log, dice.randint(log.start_offset, log.end_offset))
        except KafkaError as error:
            assert not whole and error.code is ErrorCode.CORRUPT_MESSAGE
        served(log, whole=whole)


def ask(log: Log, offset: int, dice: random.Random) -> None:
    with suppress(KafkaError):
        upto = dice.choice((log.end_offset, offset + 3))
        log.read(offset, dice.choice((0, 1, 100, 1 << 20)), upto, at_least_one=dice.random() < 0.5)
    with suppress(KafkaError):
        aborted_transactions(log, offset, log.end_offset)
    log.epochs.end_offset_for(dice.randrange(-1, 12), log.end_offset)
    log.first_unstable_offset(offset)


def served(log: Log, *, whole: bool, start: int | None = None) -> list[int]:
    """The last offsets of all batches that a consumer gets, who goes on behind what it is refused.

    Not `whole`: what lies below the recovery point is served as it is, and a broken batch is the consumer's to find.
    """
    found: list[int] = []
    offset = log.start_offset if start is None else start
    step = 1
    while offset < log.end_offset:
        last = offset
        try:
            part = log.read(offset, 1 << 16, log.end_offset)
            view = memoryview(b"" if part is None else read_slice(*part))
            for at, header in iter_batches(view):
                assert not whole or crc_matches(view, at, header)
                last = header.last_offset
                found.append(last)
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            last += step  # a broken offset may have left a hole of billions
            step *= 2
        except RecordsError:
            assert not whole
        offset = max(last, offset) + 1
    return found


def managed(*directories: Path) -> LogManager:
    manager = LogManager(list(map(str, directories)), Unsynced(), FakeClock())
    manager.lock()
    manager.claim("rqJN_tDlTSWz79bt_P852g", 1)
    manager.load(lambda topic: CONFIG)
    return manager


def opened(directory: Path) -> Log:
    return managed(directory.parent).logs[BYSTANDER]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "main" / "murmur-0", tmp_path / "logs" / "murmur-0", copy_function=shutil.copyfile)
    return tmp_path / "logs" / "murmur-0"


def test_a_segment_that_begins_elsewhere_is_not_taken_for_a_broken_write(partition: Path) -> None:
    """No checksum covers the offset of a batch, nor the name of its file: what is in it may be all there is."""
    path = partition / f"{0:020d}.log"
    content = path.read_bytes()
    renamed = path.rename(partition / f"{7:020d}.log")
    log = opened(partition)
    assert renamed.read_bytes() == content
    assert served(log, whole=True)[-1:] == [21]
    assert [hole.start for _, hole in log.damage] == [0]


def test_a_start_that_leaves_no_room_for_records_is_reported(partition: Path) -> None:
    (partition.parent / CHECKPOINTS[1]).write_text(f"0\n1\nmurmur 0 {LAST_OFFSET}\n")
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    manager = managed(partition.parent)
    assert "where no log can" in manager.broken[BYSTANDER].reason
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before


def test_the_end_of_a_segment_that_was_lengthened_with_zeros_costs_no_memory(partition: Path) -> None:
    path = partition / f"{0:020d}.log"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        log = opened(partition)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert (log.end_offset, path.stat().st_size) == (22, size)


def test_damage_that_a_truncation_ends_in_goes_as_a_whole(partition: Path) -> None:
    path = partition / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1  # inside the first of two batches
    path.write_bytes(content)
    (partition.parent / CHECKPOINTS[0]).write_text("0\n1\nmurmur 0 22\n")
    log = opened(partition)
    truncate_to(log, 20)
    log.close()


def test_a_transaction_index_is_not_made_anew_over_damage(tmp_path: Path) -> None:
    """Both broken: what was aborted cannot be known, and nobody may be told that nothing was."""
    directory = tmp_path / "logs" / "tx-0"
    shutil.copytree(GOLDEN / "main" / "tx-0", directory, copy_function=shutil.copyfile)
    index = next(path for path in sorted(directory.glob("*.txnindex")) if path.stat().st_size)
    index.write_bytes(b"broken")
    log_file = index.with_suffix(".log")
    log_file.write_bytes(bytes(12) + log_file.read_bytes()[12:])
    for name in (CHECKPOINTS[0], ".kafka_cleanshutdown"):
        shutil.copyfile(GOLDEN / "main" / name, tmp_path / "logs" / name)
    log = managed(tmp_path / "logs").logs[TopicPartition("tx", 0)]
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            aborted_transactions(log, int(index.stem), log.end_offset)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert index.read_bytes() == b"broken"
    log.close()
