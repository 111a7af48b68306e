"""Commands that kctl prints for a person to paste."""

from __future__ import annotations

import pytest

from kctl.command.spelling import spelled
from kctl.settings import Settings


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
