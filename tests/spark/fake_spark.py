"""A spark-submit that is a Python program: it speaks the socket as the driver does, without a JVM."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java

_HEAD = """import json, os, signal, subprocess, sys, time
from kafkad_etl.driver.channel import Channel
from kafkad_etl.messages import *
"""


def fake_spark(directory: Path, body: str) -> Environment:
    """An environment whose spark-submit runs `body`."""
    program = directory / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{_HEAD}{textwrap.dedent(body)}")
    program.chmod(0o755)
    return Environment(Java(directory / "jdk", "17", "PATH"), directory / "spark", "4.0.0", sys.executable, ())
