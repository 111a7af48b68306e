"""What brokers begin with that are started again while their file is another already."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafkad.config import Config, ConfigError, load
from kafkad.config.reloading import KeptFile, begun
from kafkad.config.several import settings_of

FILE = "listeners: {name}://127.0.0.1:{port}\nlistener.security.protocol.map: {name}:PLAINTEXT\nkafkad.brokers: 2\n"
OWN, OTHER = FILE.format(name="OWN", port=9092), FILE.format(name="OTHER", port=9192)


def parser(path: Path) -> Callable[[bytes | None], Config]:
    return lambda content: load(str(path), [], {}, content=content)


def of_second(path: Path, content: bytes | None) -> Config:
    return load(str(path), settings_of(parser(path)(content), 1, 0), {}, content=content)


def test_a_broker_begins_with_the_file_that_the_others_run_by(tmp_path: Path) -> None:
    path = tmp_path / "kafkad.yaml"
    path.write_text(OWN + "num.partitions: 3\n")
    kept = KeptFile(str(path), parser(path))
    path.write_text(OTHER + "num.partitions: 4\nmessage.max.bytes: 9000\n")
    config = begun(kept.contents, partial(of_second, path))
    assert [(each.listener, each.port) for each in config.listeners] == [("OWN", 9093)]
    assert (config.broker_id, config.int("num.partitions"), config.is_set("message.max.bytes")) == (1, 3, False)
    kept.read_again()
    path.unlink()
    config = begun(kept.contents, partial(of_second, path))
    assert [(each.listener, each.port) for each in config.listeners] == [("OWN", 9093)]
    assert (config.broker_id, config.int("num.partitions"), config.int("message.max.bytes")) == (1, 3, 9000)


def test_what_running_brokers_do_not_take_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "kafkad.yaml"
    path.write_text(OWN)
    kept = KeptFile(str(path), parser(path))
    path.write_text(OWN + "message.max.bytes: 9000\n")
    kept.read_again()
    before = kept.contents
    for text in (OWN + "no.such.setting: 1\n", "listeners: A\n"):
        path.write_text(text)
        with pytest.raises(ConfigError):
            kept.read_again()
    path.unlink()
    with pytest.raises(ConfigError):
        kept.read_again()
    assert kept.contents == before
    assert kept.config.int("message.max.bytes") == 9000


def test_without_a_file_there_is_nothing_to_keep() -> None:
    kept = KeptFile(None, lambda content: load(None, ["num.partitions=3"], {}))
    kept.read_again()
    assert (kept.contents, kept.config.int("num.partitions")) == ([], 3)
