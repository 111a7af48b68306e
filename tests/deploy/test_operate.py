"""docs/operate.md: every block marked as shell is run, in order, against a broker of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.pages import carried_out
from tests.oracle.kafka import free_port

PAGE = Path(__file__).parents[2] / "docs" / "operate.md"
SECONDS = 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS)]

MACHINE = r"""
set -eo pipefail
export PATH={programs}:$PATH KCTL_BOOTSTRAP=127.0.0.1:{port} HOME={home}
kctl() {{ command kctl "$@" || [ $? -eq 7 ]; }}  # 7: done, and something is not in order
start() {{
    kafkad --config {home}/kafkad.yaml 2>>{home}/kafkad.log & echo $! >{home}/pid
    until curl -fs http://127.0.0.1:{http}/ready >/dev/null; do sleep 0.1; done
}}
stop() {{ kill "$(cat {home}/pid)"; while kill -0 "$(cat {home}/pid)" 2>/dev/null; do sleep 0.1; done; }}
systemctl() {{ case $1 in start) start ;; stop) stop ;; restart) stop; start ;; *) return 64 ;; esac; }}
trap 'stop 2>/dev/null || true' EXIT
mkdir {home}/backup
start
kctl topics create orders -p 2 -y -q
seq 100 | kctl produce orders -q
kctl consume orders --group billing -n 100 -q >/dev/null
set -v
"""


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.mark.parametrize("trouble", ["the archive is cut off", "kafkad does not stop"])
def test_a_restore_that_cannot_succeed_deletes_nothing(trouble: str, tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    backup.mkdir()
    (data / "records").write_bytes(bytes(100_000))
    archive = backup / "kafkad.tar"
    subprocess.run(["tar", "--create", "--file", archive, "--directory", data, "."], check=True)
    if trouble == "the archive is cut off":
        archive.write_bytes(archive.read_bytes()[:50_000])
    (data / "newer").touch()
    [restore] = [block for block in blocks() if "tar --extract" in block]
    stops = "false" if trouble == "kafkad does not stop" else "true"
    places = {"/var/lib/kafkad": str(data), "/backup/": f"{backup}/"}
    machine = f"systemctl() {{ {stops}; }}\nkctl() {{ true; }}\n"
    carried_out(restore, places, machine=machine, check="", home=tmp_path, seconds=SECONDS)
    assert (data / "newer").exists()


def test_what_the_page_says_to_do_can_be_done(tmp_path: Path) -> None:
    port, http = free_port(), free_port()
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "kafkad.yaml").write_text(
        f"listeners: PLAINTEXT://127.0.0.1:{port}\nhttp.listener: 127.0.0.1:{http}\nlog.dirs: {data}\n"
    )
    places = {
        "/var/lib/kafkad": str(data),
        "/etc/kafkad/": f"{tmp_path}/",
        "/backup/": f"{tmp_path}/backup/",
        "http://localhost:9404": f"http://127.0.0.1:{http}",
        "localhost:9092": f"127.0.0.1:{port}",
        "localhost:19092": f"127.0.0.1:{free_port()}",
    }
    machine = MACHINE.format(programs=Path(sys.executable).parent, port=port, http=http, home=tmp_path)
    check = """
set +v
kctl consume orders-copy -q --format "%s\\n" | wc -l
kctl consume orders -q --format "%s\\n" | wc -l
kctl groups export billing | awk -F, '{ sum += $3 } END { print sum }'
echo "all of it was done"
"""
    done = carried_out("".join(blocks()), places, machine=machine, check=check, home=tmp_path, seconds=SECONDS)
    assert done.stdout.endswith("\n100\n100\nall of it was done\n"), done.stdout + done.stderr
    assert done.returncode == 0
