"""A configuration is judged by whether there is a metadata store already: below a directory of the test's own, there is
none, whatever a broker has left in that of the project."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
