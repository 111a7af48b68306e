"""On which disks log directories lie."""

from __future__ import annotations

from kctl.reach.log_dirs import Disk, LogDir, disks, known_sum
from kctl.reach.session import Broker

SHARED = [(1, "/1", 40), (1, "/1b", 40), (2, "/2", 40), (2, "/other", 30), (3, "/3", 40)]


def test_a_disk_counts_once_for_all_that_share_it() -> None:
    brokers = {1: Broker(1, "a", 9092, None), 2: Broker(2, "a", 9093, None), 3: Broker(3, "b", 9092, None)}
    directories = [LogDir(broker, path, 100, free, None, ()) for broker, path, free in SHARED]
    assert known_sum(disk.free for disk in disks(directories, brokers)) == 40 + 30 + 40
    assert known_sum(disk.free for disk in disks([LogDir(1, "/d", None, None, None, ())], brokers)) is None


def test_a_disk_that_is_written_to_while_brokers_are_asked_counts_once() -> None:
    brokers = {1: Broker(1, "a", 9092, None), 2: Broker(2, "a", 9093, None)}
    total, free = 100 << 30, 40 << 30
    told = [LogDir(1, "/1", total, free, None, ()), LogDir(2, "/2", total, free - 4096, None, ())]
    other = LogDir(2, "/other", total, free - (1 << 30), None, ())
    assert disks(told, brokers) == [Disk("a", total, free - 4096)]
    assert disks([other, *told], brokers) == [Disk("a", total, other.free), Disk("a", total, free - 4096)]


def test_disks_of_one_broker_that_are_evenly_filled_are_several() -> None:
    brokers = {1: Broker(1, "a", 9092, None), 2: Broker(2, "a", 9093, None)}
    rooms = [(broker, 4 << 40, (1 << 40) + (number << 27)) for broker in (1, 2) for number in range(4)]
    directories = [LogDir(broker, f"/{free}", total, free, None, ()) for broker, total, free in rooms]
    assert len(disks(directories[:4], brokers)) == len(disks(directories, brokers)) == 4


def test_a_disk_that_is_written_to_while_its_broker_looks_at_it_counts_once() -> None:
    brokers = {1: Broker(1, "a", 9092, None)}
    directories = [LogDir(1, f"/{number}", 4 << 40, (1 << 40) - (number << 20), None, ()) for number in range(3)]
    assert disks(directories, brokers) == [Disk("a", 4 << 40, (1 << 40) - (2 << 20))]
