"""The Dockerfile without an engine: its steps in order, over this machine's files in mount namespaces of their own,
then its entry point, health check and stop signal in a network namespace, where its ports are free.

What this cannot show is the base image: the steps run on this machine's Python instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import pytest

HERE = Path(__file__).parents[2]
HADOLINT = Path(sys.executable).with_name("hadolint")
SECONDS = 600
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As the base image has it."""

STAGE = """
mkdir -p {at}/upper {at}/work {at}/tree
mount -t overlay overlay -o lowerdir=/,upperdir={at}/upper,workdir={at}/work {at}/tree
mount --bind /proc {at}/tree/proc
mount --bind /dev {at}/tree/dev
"""

RUN = """
ip link set lo up
user="chroot --userspec={user} {root} env -i PATH={path} {env} HOME=/nonexistent LC_ALL=C.UTF-8 sh -ec"
$user 'cd {workdir}; exec {entrypoint}' 2>{root}/tmp/broker.log &
for each in $(seq 300); do $user {health} 2>/dev/null && break; sleep 0.2; done
$user {health} && echo "it is healthy"
$user 'kctl topics create shipped -p 2 -y -q; seq 100 | kctl produce shipped -q'
echo "read: $($user 'kctl consume shipped -q' | sort -n | tail -1)"
echo "owner: $(stat -c %u {root}/var/lib/kafkad/shipped-0)"
kill -{signal} $!
wait $! && echo "it stopped with 0"
cat {root}/tmp/broker.log
"""


class Step(NamedTuple):
    word: str
    rest: str


def steps() -> list[Step]:
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (HERE / "Dockerfile").read_text(), flags=re.M))
    return [Step(*line.split(" ", 1)) for line in text.splitlines() if line]


def last(word: str) -> str:
    return next(step.rest for step in reversed(steps()) if step.word == word)


def context(into: Path) -> None:
    """The files that .dockerignore lets through."""
    for line in (HERE / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, target = HERE / line[1:], into / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, target)


class Replay:
    """The steps as a shell script; `root` is where the last stage is put together."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.script = f"set -e\nmount -t tmpfs none {work}/stages\n"
        self.stages: dict[str, Path] = {}
        self.workdir = "/"

    @property
    def root(self) -> Path:
        return list(self.stages.values())[-1]

    def take(self, step: Step) -> None:
        {"FROM": self._from, "WORKDIR": self._workdir, "RUN": self._run, "COPY": self._copy}.get(
            step.word, lambda rest: None
        )(step.rest)

    def _from(self, rest: str) -> None:
        _, _, name = rest.partition(" AS ")
        at = self.work / "stages" / str(len(self.stages))
        self.stages[name or "image"] = at / "tree"
        self.script += STAGE.format(at=at)
        self.workdir = "/"

    def _workdir(self, rest: str) -> None:
        self.workdir = rest
        self.script += f"mkdir -p {self.root}{rest}\n"

    def _run(self, rest: str) -> None:
        self.script += f"PATH={PATH} chroot {self.root} sh -ec {quote(f'cd {self.workdir}; {rest}')}\n"

    def _copy(self, rest: str) -> None:
        words = rest.split()
        source = self.work / "context"
        if words[0].startswith("--from="):
            source = self.stages[words.pop(0).removeprefix("--from=")]
        *names, target = words
        place = f"{self.root}{Path(self.workdir) / target}"
        if target.endswith("/"):
            self.script += f"mkdir -p {place}\n"
        for name in names:
            found = f"{source}/{name.lstrip('/')}"
            self.script += (
                f"if [ -d {found} ]; then mkdir -p {place}; cp -a {found}/. {place}/\n"
                f"else mkdir -p $(dirname {place}x); cp {found} {place}; fi\n"
            )


def test_the_image_is_small_pinned_and_not_root() -> None:
    base = next(step.rest for step in steps() if step.word == "ARG")
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+", base)
    assert last("USER") not in ("root", "0")
    assert last("STOPSIGNAL") == "SIGTERM"
    assert last("ENV") == f"STATE_DIRECTORY={last('VOLUME')}"
    assert "/health" in last("HEALTHCHECK")


def test_nothing_stands_above_a_file_of_the_users() -> None:
    assert json.loads(last("ENTRYPOINT")) == ["kafkad", "--config", "/etc/kafkad/kafkad.yaml"]


@pytest.mark.skipif(not HADOLINT.exists(), reason="no hadolint")
def test_hadolint_finds_nothing() -> None:
    said = subprocess.run([HADOLINT, "Dockerfile"], cwd=HERE, capture_output=True, text=True)
    assert (said.stdout, said.returncode) == ("", 0)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS)
def test_its_steps_make_a_broker_that_runs(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("mounting an overlay needs root")
    (tmp_path / "stages").mkdir()
    context(tmp_path / "context")
    replay = Replay(tmp_path)
    for step in steps():
        replay.take(step)
    health = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    run = RUN.format(
        root=replay.root,
        path=PATH,
        env=last("ENV"),
        user=f"{last('USER')}:{last('USER')}",
        workdir=replay.workdir,
        entrypoint=" ".join(json.loads(last("ENTRYPOINT"))),
        health=quote(" ".join(map(quote, health))),
        signal=last("STOPSIGNAL").removeprefix("SIG"),
    )
    script = f"{replay.script}unshare --net sh -e <<'END'{run}END\n"
    done = subprocess.run(["unshare", "--mount", "sh"], input=script, capture_output=True, text=True, timeout=SECONDS)
    said = done.stdout + done.stderr
    for line in ("it is healthy\n", "read: 100\n", "owner: 909\n", "stopped cleanly in ", "it stopped with 0\n"):
        assert line in said, said
    assert done.returncode == 0, said
