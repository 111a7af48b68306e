"""README and docs/migrate.md: the drop-ins by which the units start on Kafka's own file and directories."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kafkad.__main__ import main

ROOT = Path(__file__).parents[2]
DROP_IN = re.compile(r"`systemctl edit (kafkad@?)\S*`.*?^```ini\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/migrate.md"])
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
