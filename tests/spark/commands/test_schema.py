from __future__ import annotations

import json

from tests.kctl.conftest import Kctl


def test_the_schema_names_every_block_and_what_it_means(kctl: Kctl) -> None:
    ran = kctl("etl", "schema")
    assert ran.code == 0
    schema = json.loads(ran.out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    blocks = schema["$defs"]
    assert all(block["additionalProperties"] is False for block in blocks.values())
    source = blocks["Source"]["properties"]
    assert source["isolation"]["enum"] == ["read_committed", "read_uncommitted"]
    assert "earliest" in source["start"]["description"]
    assert blocks["Job"]["required"] == ["version", "name", "source", "sink"]
    undescribed = [
        (name, key)
        for name, block in blocks.items()
        for key, value in block["properties"].items()
        if "description" not in value
    ]
    assert undescribed == []
