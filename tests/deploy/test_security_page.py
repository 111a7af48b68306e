"""docs/security.md: what it says to do from nothing on is done, in order, with a broker of its own."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.deploy.pages import carried_out
from tests.oracle.kafka import free_port

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SECONDS = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS),
    pytest.mark.skipif(
        not all(map(shutil.which, ("openssl", "kcat", "curl", "ss"))), reason="needs openssl, kcat, curl and ss"
    ),
]

MACHINE = r"""
set -eo pipefail
export PATH={programs}:$PATH HOME={home}
unset KCTL_CONTEXT KCTL_BOOTSTRAP
chown() {{ shift; ls -- "$@" >/dev/null; }}
stop() {{
    [ -f {home}/pid ] || return 0
    kill "$(cat {home}/pid)"
    tail --pid="$(cat {home}/pid)" -s 0.1 -f /dev/null
    rm {home}/pid
}}
times_read() {{ grep -c "its TLS stores were read again" {home}/kafkad.log || true; }}
systemctl() {{
    if [ "$*" = "reload kafkad" ]; then
        before=$(times_read)
        kill -HUP "$(cat {home}/pid)"
        until [ "$(times_read)" -gt "$before" ]; do kill -0 "$(cat {home}/pid)"; sleep 0.1; done
        return
    fi
    [ "$*" = "restart kafkad" ]
    stop
    kafkad --config {home}/kafkad.yaml 2>>{home}/kafkad.log & echo $! >{home}/pid
    until curl -fs http://127.0.0.1:{http}/ready >/dev/null; do kill -0 "$(cat {home}/pid)"; sleep 0.1; done
}}
trap stop EXIT
set -v
"""
OF_THE_MACHINE = """log.dirs: {home}/data
http.listener: 127.0.0.1:{http}
"""


def steps() -> str:
    """The page's shell, where its YAML replaces the broker's file. Each section begins in some other directory, and
    what is done at each broker of a cluster is done at one."""
    as_shell = {
        "sh": "{0}",
        "yaml": "cat /etc/kafkad/of-the-machine.yaml - > /etc/kafkad/kafkad.yaml <<'EOF'\n{0}EOF\n",
    }
    said = ""
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.M):
        blocks = re.findall(r"^```(sh|yaml)\n(.*?)^```$", section, re.M | re.S)
        said += "cd /\n" + "".join(as_shell[kind].format(text) for kind, text in blocks)
    return said


def test_what_the_page_says_to_do_can_be_done(tmp_path: Path) -> None:
    plain, tls, login, http = (free_port() for _ in range(4))
    places = {
        "/etc/kafkad": str(tmp_path),
        "0.0.0.0:9092": f"127.0.0.1:{plain}",
        "0.0.0.0:9093": f"127.0.0.1:{tls}",
        "0.0.0.0:9094": f"127.0.0.1:{login}",
        "kafka-1.example.org:9092": f"localhost:{plain}",
        "kafka-1.example.org:9093": f"localhost:{tls}",
        "kafka-1.example.org:9094": f"localhost:{login}",
        "127.0.0.1:9092": f"127.0.0.1:{plain}",
        "127.0.0.1:9404": f"127.0.0.1:{http}",
        "sport = :9092": f"sport = :{plain}",
        "$name.example.org": "localhost",
        "DNS:kafka-1.example.org": "DNS:localhost",
    }
    (tmp_path / "of-the-machine.yaml").write_text(OF_THE_MACHINE.format(home=tmp_path, http=http))
    machine = MACHINE.format(programs=Path(sys.executable).parent, http=http, home=tmp_path)
    check = f"""cd {tmp_path}
[ "$(stat -c %a admin.password alice.password alice.conf | uniq)" = 600 ]
kcat -F alice.conf -b localhost:{login} -C -t orders -e -q
if kcat -b localhost:{plain} -L -m 2 2>/dev/null; then exit 1; fi
openssl s_client -connect localhost:{login} </dev/null 2>&1 | openssl x509 -noout -issuer | grep -q "Acme Kafka 2"
kctl -c prod doctor --only acls,open-without-acls >/dev/null
[ "$(kctl -c prod acls check bob Write orders -o json >/dev/null; echo $?)" = {Exit.FINDINGS:d} ]
[ "$(kctl -c prod users list --no-headers | cut -d' ' -f1 | xargs)" = "admin alice bob broker-2 operator" ]
echo all of it was done
"""
    done = carried_out(steps(), places, machine=machine, check=check, home=tmp_path, seconds=SECONDS)
    log = tmp_path / "kafkad.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    assert done.stdout.endswith("two boxes\nthree boxes\nall of it was done\n") or done.stdout.endswith(
        "three boxes\ntwo boxes\nall of it was done\n"
    ), done.stdout
