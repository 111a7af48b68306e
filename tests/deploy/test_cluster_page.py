"""docs/cluster.md: the file that it shows is one for the unit that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkad.config import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
UNIT = (ROOT / "systemd" / "kafkad@.service").read_text()


def of_unit(option: str, broker: int) -> str:
    [value] = re.findall(rf"^{option}=(.+)$", UNIT, re.M)
    return str(value).replace("%i", str(broker))


@pytest.mark.parametrize("broker", [1, 2])
def test_each_broker_has_data_where_its_unit_lets_it_write(broker: int, tmp_path: Path) -> None:
    [sample] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    file = tmp_path / "sample.yaml"
    file.write_text(sample)
    *_, set_id = of_unit("ExecStart", broker).split()
    state = f"/var/lib/{of_unit('StateDirectory', broker)}"
    config = load(str(file), [set_id], {"STATE_DIRECTORY": state})
    assert config.broker_id == broker
    assert [str(Path(path)) for path in config.log_dirs] == [state]
    assert config.warnings == ()
    assert config.http_listener is not None


def test_the_file_is_where_the_unit_looks_for_it() -> None:
    assert "--config /etc/kafkad/1.yaml" in of_unit("ExecStart", 1)
    assert "`/etc/kafkad/1.yaml` for broker 1" in PAGE
