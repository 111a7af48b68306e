"""`kctl etl submit` for a user's own program, from its name to its exit code.

Everything that can be checked without Spark is checked before it starts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TextIO

from kafkad_etl.cluster.clusters import client_of, own, probe
from kafkad_etl.cluster.handover import secrets_of, variables_of
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine import environment
from kafkad_etl.planning import masters
from kafkad_etl.process.programs import Program, local_files, local_path, properties
from kafkad_etl.process.supervising import supervise
from kctl.errors import KctlError
from kctl.reach.access import Access, resolve
from kctl.reach.session import Session
from kctl.settings import Settings
from kctl.texts.text_files import content_of

_DEFAULT_CLIENT_ID = Access().client_id
_ONLY_CLIENT = "deploy mode cluster is not supported: output, exit code and Ctrl-C need the program on this machine"


class Request(NamedTuple):
    """The command line's arguments."""

    file: str
    options: Mapping[str, str] = {}
    """spark-submit's, by name."""
    conf: Sequence[str] = ()
    arguments: tuple[str, ...] = ()
    java_home: str = ""
    grace: float = 0.0


def submit(settings: Settings, request: Request, stream: TextIO) -> int:
    """Returns the program's exit code. Raises EtlError if it cannot be started. `stream` gets what people read
    besides the program's own output."""

    def say(text: str) -> None:
        print(text, file=stream, flush=True)

    program = program_of(request, os.environ)
    access = _named(resolve(settings, os.environ), program)
    secrets = secrets_of(access, client_of(access, access.client_id))
    found = environment.find_for_program(
        program.driver_memory, request.java_home, os.environ, brings_connector=program.brings_connector
    )
    masters.check_master(program.master, program.conf)
    if settings.dry_run:
        print(_dry_run(program, found))
        return EtlExit.DONE
    for warning in (*found.warnings, *_cluster_doubts(settings, access)):
        say(f"warning: {warning}")
    code = supervise(program, found, variables_of(access, os.environ), secrets, request.grace, say)
    if code:
        say(f"{program.file} ended with exit code {code}")
    return code


def program_of(request: Request, environ: Mapping[str, str]) -> Program:
    """The program with its options. Raises EtlError USAGE for what Spark would refuse only after its start."""
    _check_file(request.file, environ)
    given = dict(_setting(word) for word in request.conf)
    defaults = Path(request.options.get("--properties-file") or _default_properties(environ))
    conf = (properties(defaults.read_text(encoding="utf-8")) if defaults.is_file() else {}) | given
    for where, name in local_files(request.options, conf):
        if not Path(name).exists():
            raise EtlError(f"{where}: {name}: no such file", EtlExit.USAGE)
    mode = request.options.get("--deploy-mode") or conf.get("spark.submit.deployMode") or "client"
    if mode != "client":
        hints = ("remove it: executors run in the cluster anyway",)
        raise EtlError(_ONLY_CLIENT, EtlExit.USAGE, hints=hints)
    return Program(request.file, request.options, conf, given, request.arguments)


def _default_properties(environ: Mapping[str, str]) -> str:
    directory = environ.get("SPARK_CONF_DIR")
    return f"{directory}/spark-defaults.conf" if directory else ""


def _setting(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise EtlError(f'--conf "{word}" is not NAME=VALUE', EtlExit.USAGE)
    return name.strip(), value


def _check_file(name: str, environ: Mapping[str, str]) -> None:
    if Path(name).suffix != ".py":
        hints = (
            "kctl etl run takes a job by any name, or from a pipe",
            "Spark's own spark-submit runs other programs: kctl etl env, kctl etl jars path",
        )
        raise EtlError(f"{name} is neither a job (.yaml) nor a program (.py)", EtlExit.USAGE, hints=hints)
    path = local_path(name)
    if path is None:
        return  # Spark fetches it
    try:
        source = content_of(path)
    except OSError as error:
        raise EtlError(f"{name}: {(error.strerror or str(error)).lower()}", EtlExit.USAGE) from error
    except KctlError as error:  # without its hint: a pipe has no name that ends in .py
        raise EtlError(error.what, EtlExit.USAGE) from None
    if environ.get("PYSPARK_DRIVER_PYTHON") or environ.get("PYSPARK_PYTHON"):
        return  # another Python may have another syntax
    _check_syntax(name, source)


def _check_syntax(name: str, source: bytes) -> None:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise EtlError(f"{name}:{error.lineno or 1}: {error.msg}", EtlExit.USAGE) from error
    except ValueError as error:
        raise EtlError(f"{name}: it is not a Python program: {error}", EtlExit.USAGE) from error


def _named(access: Access, program: Program) -> Access:
    """The access under the program's name, by which brokers log and limit clients, unless another one is set."""
    return access if access.client_id != _DEFAULT_CLIENT_ID else access._replace(client_id=Path(program.file).stem)


def _cluster_doubts(settings: Settings, access: Access) -> list[str]:
    """A warning if the cluster that was named does not answer. The program may not need it."""
    named = access.context or settings.bootstrap or settings.extra or settings.command_config
    if not named and not os.environ.get("KCTL_BOOTSTRAP"):
        return []
    try:
        with closing(Session(own(settings), access)) as session:
            probe(session)
    except KctlError as error:
        return ["; ".join((error.what, *error.hints))]
    return []


def _dry_run(program: Program, found: environment.Environment) -> str:
    """The command line as a shell takes it; the login is not on it."""
    tools = [f"{name}={value}" for name, value in environment.tool_variables(found).items()]
    return shlex.join([*tools, *program.command(found)])
