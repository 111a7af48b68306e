"""Commands that kctl prints for a person to paste."""

from __future__ import annotations

import pytest

from kctl.settings import Settings
from kctl.texts.spelling import on_this_cluster, spelled


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, ""),
        ({"context": "prod"}, " -c prod"),
        ({"bootstrap": "a:1,b:2"}, " -b a:1,b:2"),
        ({"command_config": "my files/x.properties"}, " --command-config 'my files/x.properties'"),
        ({"extra": {"bootstrap.servers": "a:1", "sasl.jaas.config": "secret"}}, " -X bootstrap.servers=a:1"),
    ],
)
def test_a_command_goes_to_the_cluster_of_this_one(given: dict[str, object], where: str) -> None:
    settings = Settings()
    for name, value in given.items():
        setattr(settings, name, value)
    assert spelled(settings, "topics delete t") == f"kctl{where} topics delete t"
    assert spelled(settings, "acls list", "acls add") == f"kctl{where} acls list; kctl{where} acls add"
    assert spelled(settings) == ""


def test_the_commands_of_hints_go_to_the_cluster_of_this_one() -> None:
    settings = Settings()
    settings.context = "prod"
    hint = "kctl groups members g; kctl: it; see kctl topics list"
    assert on_this_cluster(settings, hint) == "kctl -c prod groups members g; kctl: it; see kctl -c prod topics list"
    assert on_this_cluster(settings, "kctl topics --help lists what is available") == (
        "kctl topics --help lists what is available"
    )
