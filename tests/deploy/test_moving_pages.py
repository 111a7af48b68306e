"""README and docs/migrate.md: the units, which are to start on Kafka's own file and directories, and to take turns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kafkad.__main__ import main

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/migrate.md")
DROP_IN = re.compile(r"`systemctl edit (kafkad@?)\S*`.*?^```ini\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_a_drop_in_starts_what_its_unit_starts_on_kafkas_file(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [(unit, drop_in)] = DROP_IN.findall((ROOT / page).read_text())
    of_unit = re.findall(r"^ExecStart=(.+)$", (ROOT / "systemd" / f"{unit}.service").read_text(), re.M)
    header, reset, start, writable = drop_in.splitlines()
    assert (header, reset) == ("[Service]", "ExecStart=")
    program, *words = shlex.split(start.removeprefix("ExecStart="))
    assert program == shlex.split(of_unit[0])[0]
    kafkas = tmp_path / "server.properties"
    data = writable.removeprefix("ReadWritePaths=")
    kafkas.write_text(f"broker.id=1\nlog.dirs={data}\nzookeeper.connect=zk1:2181\n")
    assert main([*(word.replace("/etc/kafka/server.properties", str(kafkas)) for word in words), "--check"]) == 0
    verdict = capsys.readouterr().out
    assert f"data in {data}" in verdict
    assert ("zk1:2181" in verdict) == (unit == "kafkad@")


@pytest.mark.parametrize("page", PAGES)
def test_a_unit_is_disabled_before_the_other_one_is_enabled_on_its_directories(page: str) -> None:
    """There and back; one that is only stopped would start beside the other at the next boot."""
    text = (ROOT / page).read_text()
    [moving] = re.findall(r"^#* *(?:Move from Kafka 3.9|Take over, broker by broker).*?(?=^## )", text, re.M | re.S)
    assert re.findall(r"^ +systemctl (.+) (kafkad?)(?:@1)?$", moving, re.M) == [
        ("disable --now", "kafka"),
        ("enable --now", "kafkad"),
        ("disable --now", "kafkad"),
        ("enable --now", "kafka"),
    ]
    assert "systemctl stop" not in text
