"""`kafkad`: command line to configuration to broker, and the exit code."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence

from kafkad import __version__, loggers
from kafkad.config import Config, ConfigError, load
from kafkad.config.checks import doubts, may_have_dynamic_settings, of_keys_and_logins, of_logins
from kafkad.config.exposed import exposed
from kafkad.exit_status import BAD_CONFIGURATION
from kafkad.garbage import keep_collections_short
from kafkad.model import Endpoint


def program() -> int:
    """A process of its own. SIGHUP would end it until somebody listens to it, and waits until then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)

    def read(*, again: bool = True) -> Config:
        brokers = [] if options.brokers is None else [f"kafkad.brokers={options.brokers}"]
        supervised = options.supervised is not None
        return load(options.config, [*brokers, *options.set], os.environ, among_others=supervised, again=again)

    try:
        config = read(again=False)
        if options.refuse_blank_file:
            config.refuse_blank_file()
    except ConfigError as error:
        for problem in error.problems:
            print(f"kafkad: {problem}", file=sys.stderr)
        return BAD_CONFIGURATION
    if options.check:
        return _report(config)
    supervised: list[int] | None = options.supervised
    several = supervised is None and config.int("kafkad.brokers") > 1
    broker = None if supervised is None else config.broker_id
    loggers.setup(config.str("kafkad.log.format"), config.str("kafkad.log.level"), broker=broker)
    _say_who_starts(options.config)
    for warning in config.warnings:
        logging.getLogger("kafkad.config").warning("%s", warning)

    _allow_many_files()
    keep_collections_short()
    if several:
        from kafkad.supervisor import run as supervise

        return supervise(config, read, [*_launcher(), *(sys.argv[1:] if arguments is None else arguments)])
    from kafkad.broker import run  # not before it is certain that there is something to run
    from kafkad.broker.supervised import Supervised

    return run(config, read, None if supervised is None else Supervised.inherited(supervised, os.environ))


def _say_who_starts(file: str | None) -> None:
    """The first line of the log."""
    configuration = os.path.abspath(file) if file is not None else "without a file"
    logging.getLogger("kafkad.start").info(
        "kafkad %s, process %d, Python %s, configuration %s",
        __version__,
        os.getpid(),
        sys.version.split()[0],
        configuration,
    )


def _allow_many_files() -> None:
    """Every connection and every log in use is an open file: take as many as the system grants this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _launcher() -> list[str]:
    """The words that started this program, without its arguments: what Python runs, or `kafkad` by its path."""
    return sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="kafkad",
        description="A Kafka broker without a JVM. Without --config: one node on 127.0.0.1:9092, data in "
        "$STATE_DIRECTORY or kafkad-data.",
    )
    made.add_argument("--config", metavar="FILE", help="settings: YAML, or a server.properties of Kafka as it is")
    made.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="one setting; wins over the file; repeatable"
    )
    made.add_argument(
        "--brokers", metavar="N", help="start N brokers on this host, each on a core of its own (kafkad.brokers)"
    )
    made.add_argument("--check", action="store_true", help="check the configuration and exit; touches no data")
    made.add_argument("--supervised", type=int, nargs="+", help=argparse.SUPPRESS)  # descriptors from the supervisor
    made.add_argument("--refuse-blank-file", action="store_true", help=argparse.SUPPRESS)  # from the supervisor, too
    made.add_argument("--version", action="version", version=f"kafkad {__version__}")
    return made


def _report(config: Config) -> int:
    problems = of_keys_and_logins(config) or _problems_of_files(config)
    lacking = _without_rights(config)
    for warning in (*config.warnings, *exposed(config), *([] if problems else doubts(config)), *lacking):
        print(f"warning: {warning}")
    has_passwords = bool(config.value("password.encoder.secret"))
    if problems and may_have_dynamic_settings(config) and (has_passwords or not of_logins(config)):
        for problem in problems:
            print(f"warning: {problem}; dynamic settings of the broker, which --check does not read, may mend it")
    elif problems:
        for problem in problems:
            print(f"kafkad: {problem}", file=sys.stderr)
        return BAD_CONFIGURATION
    if config.zookeeper is not None and config.bool("zookeeper.ssl.client.enable"):
        from kafkad.broker.zookeeper_tls import ZooKeeperContexts

        try:
            ZooKeeperContexts(config)
        except ValueError as error:
            print(f"kafkad: {error}", file=sys.stderr)
            return BAD_CONFIGURATION
    listeners = ", ".join(map(_shown, config.listeners))
    brokers = config.int("kafkad.brokers")
    several = f"{brokers} brokers, the first " if brokers > 1 else ""
    zookeeper = config.zookeeper
    metadata = f"; metadata in ZooKeeper at {''.join(zookeeper)}" if zookeeper else ""
    data = ", ".join(config.log_dirs)
    if not (config.is_set("log.dir") or config.is_set("log.dirs") or os.environ.get("STATE_DIRECTORY")):
        data = f"$STATE_DIRECTORY or {data}"  # systemd sets it for a unit, not for who checks the unit's file
    print(f"configuration is good: {several}listens on {listeners}; data in {data}{metadata}")
    return 0


def _without_rights(config: Config) -> list[str]:
    from kafkad.broker.own_user import without_rights

    return list(without_rights(config))


def _problems_of_files(config: Config) -> list[str]:
    """Of stores, issuers' keys and keytabs."""
    from kafkad.broker import issuers
    from kafkad.security.gssapi import keytab_problem

    found = list(issuers.problems(config))
    if config.encrypted_listeners:
        from datetime import UTC, datetime

        from kafkad.broker.tls import problems

        found += problems(config, datetime.now(UTC))
    unusable = keytab_problem(config)
    return found if unusable is None else [*found, unusable]


def _shown(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


if __name__ == "__main__":
    sys.exit(program())
