"""docs/cluster.md: the loop that waits between two restarts of a rolling restart."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"

KCTL = """
sleep() { :; }
kctl() {
    echo "$*" >>asked
    case $(wc -l <asked) in
        1) return 4 ;;
        2) echo __consumer_offsets ;;
        *) ;;
    esac
}
"""


def test_it_goes_on_while_no_broker_answers_and_while_a_topic_is_unhealthy(tmp_path: Path) -> None:
    [loop] = re.findall(r"^ +(until .*; done)$", PAGE.read_text(), re.M)
    subprocess.run(["sh", "-c", KCTL + loop], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "asked").read_text() == 3 * "topics list --unhealthy -o name\n"
