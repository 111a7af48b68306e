"""A pytest plugin that spreads the tests over the workers of xdist: `make test-rest`.

Tests that ask for the same costly servers go to one worker, so that a run starts each of these once; all others stay
with those of their file or class. What takes longest begins first, so that no worker ends long after the others.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED = {
    "three_kafkads": "three_kafkads",
    "three_kafkas": "three_kafkas",
    "three": "three_kafkas",
    "kraft": "kraft",
    "spark": "spark",
    "shared": "spark",
    "in_shared_spark": "spark",
}
"""What a test asks for, as a fixture or as the parameter of one → the group of all that ask for it."""

LONGEST = (
    "three_kafkads",
    "spark",
    "three_kafkas",
    "tests/cluster/test_faults.py",
    "tests/spark/test_kills.py",
    "tests/spark/driver/sinks/test_end_to_end.py",
    "tests/clients/test_groups.py",
    "tests/attacks/test_transactions.py",
    "tests/clients/test_secured.py",
    "tests/supervisor/test_host.py",
    "tests/spark/driver/test_kill.py",
    "tests/clients/test_compacted_directories.py",
    "tests/spark/test_cluster_faults.py",
    "tests/deploy/test_deb.py",
    "tests/test_on_zookeeper.py",
    "tests/meta/test_zookeeper.py",
    "kraft",
    "tests/spark/test_standalone.py",
    "tests/spark/test_kubernetes.py",
    "tests/kctl/reach/test_login_kafka.py",
    "tests/wire/test_kio.py",
    "tests/test_soak.py",
    "tests/sim/test_mutations.py",
    "tests/fuzz/test_wild_requests.py",
    "tests/clients/test_data_directories.py",
    "tests/kctl/segments/test_dump_oracle.py",
)
"""Groups and files that take more than half a minute, the longest first."""

LEFT_OUT = "KAFKAD_TEST_LEFT_OUT"
"""Names a file for the number of `long` tests that were left out of each test file: number, tab, path."""


_GROUPS = "KAFKAD_TEST_GROUPS"
"""Names the file by which a worker tells the scheduler, which sees ids only, the group of each test."""


def group_of(test: str, asks_for: Collection[str]) -> str:
    """`test` is a test's id."""
    shared = [group for name, group in SHARED.items() if name in asks_for]
    return shared[0] if shared else test.partition("[")[0].rpartition("::")[0]


def _group(item: pytest.Item) -> str:
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    fixtures = getattr(item, "fixturenames", ())
    return group_of(item.nodeid, {*fixtures, *(value for value in given if isinstance(value, str))})


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {group: number for number, group in enumerate(LONGEST)}
    groups = {item.nodeid: _group(item) for item in items}
    items.sort(key=lambda item: place.get(groups[item.nodeid], len(place)))
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        Path(os.environ[_GROUPS]).write_text(json.dumps(groups))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        descriptor, os.environ[_GROUPS] = tempfile.mkstemp()
        os.close(descriptor)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.unlink(os.environ.pop(_GROUPS))


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Groups in the order in which their first tests were collected."""

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        if self.collection is None:
            self._groups = json.loads(Path(os.environ[_GROUPS]).read_text())
        super().schedule()

    def remove_node(self, node: Any) -> str | None:
        """Others take over what a worker that died had not done. xdist would give them its finished groups, too, with
        which they would have nothing to do, and wait for ever."""
        workload = self.assigned_work[node]
        for group in [group for group, tests in workload.items() if all(tests.values())]:
            del workload[group]
        died_of: str | None = super().remove_node(node)
        return died_of

    def _split_scope(self, nodeid: str) -> str:
        return str(self._groups[nodeid])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Scheduling(config, log)


def pytest_deselected(items: list[pytest.Item]) -> None:
    if not items or items[0].config.getoption("lf", False):
        return
    if os.environ.get(LEFT_OUT) and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        count = Counter(item.nodeid.partition("::")[0] for item in items if item.get_closest_marker("long"))
        Path(os.environ[LEFT_OUT]).write_text("".join(f"{tests}\t{path}\n" for path, tests in count.most_common()))
