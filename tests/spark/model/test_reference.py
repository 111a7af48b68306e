from __future__ import annotations

from pathlib import Path

import msgspec

from kafkad_etl.job import Job
from kafkad_etl.model.cases import CaseFile
from kafkad_etl.model.reference import updated

PAGE = Path(__file__).parents[3] / "docs" / "etl.md"


def test_the_page_has_every_key_as_the_types_have_it() -> None:
    page = PAGE.read_text()
    assert page == updated(page), "run make docs"
    for file in (Job, CaseFile):
        for block in msgspec.json.schema(file)["$defs"].values():
            for name in block["properties"]:
                assert f"| `{name}` |" in page
