"""The Debian package: built, judged by lintian, installed over this machine's files in a view of its own, and run.

What is installed there is never seen outside: a mount namespace with an overlay, which needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import deb
from tests.oracle.kafka import free_port

SECONDS = 600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS)]

NEEDED = ("dpkg-deb", "dpkg", "unshare", "adduser")

INSTALL = """
set -e
mount -t tmpfs none {work}
mkdir {work}/upper {work}/work {work}/tree
mount -t overlay overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/work {work}/tree
mount --bind /proc {work}/tree/proc
mount --bind /dev {work}/tree/dev
cp {package} {work}/tree/kafkad.deb
cp {systemctl} {work}/tree/systemctl.sh
cat > {work}/tree/try.sh
exec chroot {work}/tree /usr/bin/env -i PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 sh -e /try.sh
"""

TRY = """
cd /
dpkg --no-triggers -i /kafkad.deb
echo "user: $(getent passwd kafkad | cut -d: -f6,7), data: $(stat -c '%U %a' /var/lib/kafkad)"
echo "user of jobs: $(getent passwd kctl-etl | cut -d: -f6,7)"
kafkad --version
kafkad --config /etc/kafkad/kafkad.yaml --check
man -w kafkad kctl-topics kafkad.yaml
setpriv --reuid kafkad --regid kafkad --clear-groups \
    kafkad --config /etc/kafkad/kafkad.yaml --set log.dirs=/var/lib/kafkad \
    --set listeners=PLAINTEXT://127.0.0.1:{port} --set http.listener=127.0.0.1:{http} 2>/broker.log &
for each in $(seq 200); do kctl -b 127.0.0.1:{port} --timeout 1s topics list >/dev/null 2>&1 && break; sleep 0.2; done
kctl -b 127.0.0.1:{port} topics create packed -p 2 -y
seq 100 | kctl -b 127.0.0.1:{port} produce packed -q
echo "read: $(kctl -b 127.0.0.1:{port} consume packed -q | sort -n | tail -1)"
kill -TERM $!
wait $! || true
cat /broker.log
echo "# mine" >> /etc/kafkad/kafkad.yaml
mkdir -p /run/systemd/system
rm -f /usr/bin/systemctl /usr/sbin/policy-rc.d
cp /systemctl.sh /usr/bin/systemctl
chmod 755 /usr/bin/systemctl
dpkg --no-triggers -i /kafkad.deb
tail -1 /etc/kafkad/kafkad.yaml
dpkg --remove kafkad
echo "left in /usr/lib/kafkad: $(ls -A /usr/lib/kafkad 2>/dev/null)"
cat /asked
rm -r /run/systemd/system
ls -d /etc/kafkad/kafkad.yaml
dpkg --purge kafkad
echo "left after purge: $(ls -d /etc/kafkad /var/lib/kafkad 2>/dev/null)"
dpkg --no-triggers -i /kafkad.deb
KAFKAD_PURGE_DATA=yes dpkg --purge kafkad
echo "left after all: $(ls -d /etc/kafkad /var/lib/kafkad 2>/dev/null) $(getent passwd kafkad kctl-etl)"
"""

SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> /asked
[ "$1" = list-units ] || exit 0
echo "kafkad@1.service loaded active running one of two brokers"
echo "kctl-etl@orders.service loaded active running a job"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or not deb.PYTHON.exists():
        pytest.skip(f"not a Debian: {', '.join(missing)}")
    try:
        yield deb.build(tmp_path_factory.mktemp("deb"), effort=0)
    except deb.Missing as reason:
        pytest.skip(str(reason))


def test_the_package_says_what_it_is(package: Path) -> None:
    said = subprocess.run(["dpkg-deb", "--info", package], capture_output=True, text=True, check=True).stdout
    assert "Package: kafkad" in said
    assert "Depends: python3 (>= 3." in said
    files = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    assert {owner for line in files.splitlines() if (owner := line.split()[1])} == {"root/root"}
    for name in (
        "./etc/kafkad/kafkad.yaml",
        "./lib/systemd/system/kafkad.service",
        "./lib/systemd/system/kafkad@.service",
        "./lib/systemd/system/kctl-etl@.service",
        "./lib/systemd/system/kctl-etl@.timer",
        "./usr/bin/kctl",
        "./usr/share/man/man8/kafkad.8.gz",
        "./usr/share/kafkad/grafana/kafkad.json",
        "./usr/share/kafkad/prometheus/kafkad-alerts.yaml",
        "./usr/share/doc/kafkad/operate.md.gz",
    ):
        assert f" {name}\n" in files


@pytest.mark.skipif(shutil.which("lintian") is None, reason="no lintian")
def test_lintian_finds_no_error(package: Path) -> None:
    said = subprocess.run(["lintian", "--allow-root", package], capture_output=True, text=True)
    assert [line for line in said.stdout.splitlines() if line.startswith("E:")] == []


def test_installed_it_runs_and_leaves_the_data_when_it_goes(package: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("mounting an overlay needs root")

    work = tmp_path / "view"
    work.mkdir()
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(SYSTEMCTL)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", INSTALL.format(work=work, package=package, systemctl=systemctl)],
        input=TRY.format(port=free_port(), http=free_port()),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for line in (
        "user: /var/lib/kafkad:/usr/sbin/nologin, data: kafkad 750\n",
        "user of jobs: /var/lib/kctl-etl:/usr/sbin/nologin\n",
        "read: 100\n",
        "stopped cleanly in ",
        "# mine\n",
        "systemctl list-units --state=active,activating,reloading ",
        "systemctl try-restart kafkad@1.service\nsystemctl try-restart kctl-etl@orders.service\n",
        "systemctl stop kctl-etl@*.timer kctl-etl@*.service kafkad.service kafkad@*.service\n",
        "left in /usr/lib/kafkad: \n",
        "/etc/kafkad/kafkad.yaml\n",
        "left after purge: /var/lib/kafkad\n",
        "left after all:  \n",
    ):
        assert line in said, said
