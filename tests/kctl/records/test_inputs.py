"""Lines are the same, however the input is cut into what comes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.records import inputs


@pytest.mark.parametrize("at_once", range(1, 12))
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
def test_lines_however_they_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, end: bytes) -> None:
    monkeypatch.setattr(inputs, "_CHUNK", at_once)
    path = tmp_path / "lines"
    path.write_bytes(b"one\r\n\ntwo\nand a long one\r\nfour" + end)
    with path.open("rb") as file:
        found = [line for lines in inputs.lines(file.fileno(), 0) for line in lines]
    assert found == [b"one", b"", b"two", b"and a long one", b"four", *([b""] if end == b"\n\n" else [])]
