"""etc/kafkad.yaml against the tables, and against the loader once every line of it is live."""

import re
from pathlib import Path

from kafkad.config import BROKER_SETTINGS, load
from tests.config.example import LIVE, render

EXAMPLE = Path(__file__).parents[2] / "etc" / "kafkad.yaml"


def test_the_file_is_what_the_tables_say() -> None:
    assert EXAMPLE.read_text() == render(), "python -m tests.config.example > etc/kafkad.yaml"


def test_the_file_as_it_is_sets_only_what_it_means_to() -> None:
    config = load(str(EXAMPLE), [], {})
    assert config.http_listener == ("127.0.0.1", 9404)
    assert {name for name in BROKER_SETTINGS if config.is_set(name)} == set(LIVE)


def test_with_every_setting_live_it_still_says_the_defaults(tmp_path: Path) -> None:
    everything = tmp_path / "kafkad.yaml"
    everything.write_text(re.sub(r"^#(?=[a-z])", "", EXAMPLE.read_text(), flags=re.MULTILINE))
    config = load(str(everything), [], {})
    assert config.warnings == ()
    named = {name for name in BROKER_SETTINGS if re.search(rf"^{re.escape(name)}:", everything.read_text(), re.M)}
    assert named == {name for name, setting in BROKER_SETTINGS.items() if not (setting.refused or setting.only_dynamic)}
    assert {name for name in named if config.value(name) != BROKER_SETTINGS[name].default} == set(LIVE)
