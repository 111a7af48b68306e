"""Tests that ask for the same servers go to one worker, the longest first; what is left out is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.balance import LEFT_OUT, LONGEST, SHARED, group_of

pytest_plugins = ["pytester"]

PLUGIN = Path(__file__).with_name("balance.py")


def test_who_shares_a_server_is_in_one_group() -> None:
    assert group_of("tests/a.py::test_one[three]", {"tmp_path", "three"}) == "three_kafkas"
    assert group_of("tests/b.py::test_two", {"on_three", "three", "three_kafkas"}) == "three_kafkas"
    assert group_of("tests/b.py::test_two[three_kafkads]", {"three", "three_kafkads"}) == "three_kafkads"
    assert group_of("tests/c.py::TestThree::test_it[a::b]", {"tmp_path"}) == "tests/c.py::TestThree"
    assert group_of("tests/c.py::test_it", ()) == "tests/c.py"


def test_what_is_said_to_take_long_is_there() -> None:
    root = Path(__file__).parents[1]
    assert [name for name in LONGEST if name not in SHARED.values() and not (root / name.split("::")[0]).exists()] == []


def test_one_worker_has_a_group_and_what_was_left_out_is_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytester.makeini("[pytest]\nmarkers = long")
    pytester.makeconftest("import pytest\n@pytest.fixture(scope='session')\ndef kraft(): return []")
    text = "import pytest\ndef test_it(kraft, worker_id): open({!r}, 'a').write(worker_id + '\\n')\n"
    seen = tmp_path / "seen"
    one = text.format(str(seen)) + "def test_alone(): pass\n"
    pytester.makepyfile(
        test_a=one, test_b=one + "@pytest.mark.long\ndef test_long(): pass\n", balance=PLUGIN.read_text()
    )
    monkeypatch.setenv(LEFT_OUT, str(tmp_path / "left_out"))
    words = ("-p", "balance", "-m", "not long", "-n", "2")
    result = pytester.runpytest_subprocess(*words)
    result.assert_outcomes(passed=4)
    assert len(seen.read_text().split()) == 2
    assert len(set(seen.read_text().split())) == 1
    assert (tmp_path / "left_out").read_text() == "1\ttest_b.py\n"


def test_a_worker_that_dies_keeps_nobody_waiting(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Its finished groups are not given to others, which would wait for a test of them."""
    died = tmp_path / "died"
    dies = f"""
        import os, pathlib
        def test_it(): pass
        def test_that_dies():
            died = pathlib.Path({str(died)!r})
            if not died.exists():
                died.touch()
                os._exit(1)
    """
    others = {f"test_{number}": "def test_one(): pass\ndef test_two(): pass\n" for number in range(12)}
    pytester.makepyfile(**others, test_5_dies=dies, balance=PLUGIN.read_text())
    result = pytester.runpytest_subprocess("-p", "balance", "-n", "2", timeout=60)
    result.assert_outcomes(passed=26, failed=1)
    assert died.exists()
