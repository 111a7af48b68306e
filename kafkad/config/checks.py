"""Checks of settings against each other."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kafkad.config.config import Source
from kafkad.config.listeners import ENCRYPTED, WILDCARDS
from kafkad.config.passwords import problem as problem_of_encoder
from kafkad.config.protocol import OLDEST
from kafkad.config.setting import AUTHORIZERS
from kafkad.config.several import contradictions_of_several
from kafkad.names import METADATA_FILE

if TYPE_CHECKING:
    from kafkad.config.config import Config
    from kafkad.jaas import LoginModule

_KAFKAS = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    "PLAIN": f"{_KAFKAS}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_KAFKAS}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_KAFKAS}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_KAFKAS}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
"""The mechanisms that kafkad has, with the class that names each in a JAAS line."""
_KEYTAB = f'{LOGIN_MODULES["GSSAPI"]} required useKeyTab=true storeKey=true keyTab="FILE" principal="kafka/HOST@REALM";'
ZOOKEEPER_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_HANDLER = "sasl.server.callback.handler.class"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_OF_OWN_TOKENS = (
    f"{_KAFKAS}.oauthbearer.OAuthBearerLoginCallbackHandler",
    f"{_KAFKAS}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
"""What Kafka has to be told for tokens of an issuer, under its two names."""
_OF_SIGNED_TOKENS = (
    f"{_KAFKAS}.oauthbearer.OAuthBearerValidatorCallbackHandler",
    f"{_KAFKAS}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""What Kafka has to be told for tokens that are signed, under its two names."""
_STORES = (
    ("ssl.keystore.location", "ssl.keystore.key"),
    ("ssl.truststore.location", "ssl.truststore.certificates"),
)
"""The settings that name a store, with those that are one themselves."""
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LEAST_DEDUPE_BUFFER = 1 << 20
_LEAST_LOGIN = 256
"""Bytes that even a login by a password needs for its largest message."""


def contradictions(config: Config) -> list[str]:
    """Every rule that a configuration breaks, one sentence each."""
    return [*of_keys_and_logins(config), *_stores_named_twice(config), *of_file(config)]


def of_file(config: Config) -> list[str]:
    """Those that hold for a file by itself, whatever a broker's dynamic settings are."""
    problems = [
        *_listeners(config),
        *_numbers(config),
        *_waits(config),
        *_http(config),
        *_zookeeper(config),
        *_passwords(config),
        *_rights(config),
    ]
    return problems or contradictions_of_several(config)


def of_keys_and_logins(config: Config) -> list[str]:
    """Those of the keys of listeners and of logins, which may be among a broker's dynamic settings: so a file without
    them is good, as in Kafka, if these have them."""
    return [*_keys(config), *of_logins(config)]


def of_logins(config: Config) -> list[str]:
    """Dynamic settings can have users and passwords only where `password.encoder.secret` is set."""
    try:
        logins = sorted(config.login_listeners)
    except ValueError:
        return []  # said already
    problems = [problem for listener in logins for problem in _mechanisms(config, listener)]
    return problems + (_own_login(config) if config.has_others and config.inter_broker_listener in logins else [])


def doubts(config: Config) -> list[str]:
    """What is wrong unless it is otherwise at other brokers: with ZooKeeper each has a file of its own."""
    problem = _unknown_to_itself(config) if config.value("zookeeper.connect") else None
    return [] if problem is None else [f"{problem}, unless the lines of other brokers have it"]


def may_have_dynamic_settings(config: Config) -> bool:
    """False where there is no metadata store yet. Looks at the disk."""
    if config.value("zookeeper.connect"):
        return True
    return bool(config.log_dirs) and os.path.exists(os.path.join(config.metadata_dir, METADATA_FILE))


def _listeners(config: Config) -> list[str]:
    try:
        bound = config.listeners
    except ValueError as error:
        return [f"listeners={config.str('listeners')}: {error}"]
    try:
        advertised = config.advertised_listeners
    except ValueError as error:
        return [f"advertised.listeners={config.value('advertised.listeners')}: {error}"]
    problems = [
        f"advertised.listeners cannot use the nonroutable meta-address {endpoint.host}. Use a routable IP address."
        for endpoint in advertised
        if endpoint.host in WILDCARDS
    ]
    names = {endpoint.listener for endpoint in bound}
    unknown = sorted({endpoint.listener for endpoint in advertised} - names)
    if unknown:
        problems.append(f"advertised.listeners has {', '.join(unknown)}, which listeners does not have")
    return problems + _inter_broker(config, {endpoint.listener for endpoint in advertised})


def _rights(config: Config) -> list[str]:
    users = config.super_users
    problems = [
        f"super.users: {name!r} is no principal; expected TYPE:NAME, such as User:admin, and ; between several"
        for name in users
        if not all(name.partition(":")[::2])
    ]
    problems += [
        f"super.users: {name!r} is one user, for names have commas; write ; between several"
        for name in users
        if re.search(r",\s*User:", name)
    ]
    if users and not config.str("authorizer.class.name"):
        problems.append(
            "super.users means nothing without an authorizer: everybody may do everything; set authorizer.class.name="
            f"{AUTHORIZERS[0]}, or leave super.users out"
        )
    return problems


def _mechanisms(config: Config, listener: str) -> list[str]:
    """Of a listener at which peers log in."""
    own = f"listener.name.{listener.lower()}"
    if not config.mechanisms(listener):
        return [f"listener {listener} has SASL and no mechanism: set {own}.sasl.enabled.mechanisms"]
    problems = []
    for mechanism in config.mechanisms(listener):
        if mechanism not in LOGIN_MODULES:
            known = ", ".join(LOGIN_MODULES)
            problems.append(
                f"sasl.enabled.mechanisms of listener {listener}: kafkad does not have {mechanism}, only {known}: set "
                f"{own}.sasl.enabled.mechanisms to what clients are to use instead"
            )
            continue
        problem = _jaas(config, listener, mechanism)
        if problem is not None:
            problems.append(f"{own}.{mechanism.lower()}.sasl.jaas.config: {problem}")
        problems += _handler(config, listener, mechanism)
    largest = config.int_for_listener(listener, "sasl.server.max.receive.size")
    if largest < _LEAST_LOGIN:
        problems.append(
            f"sasl.server.max.receive.size={largest} of listener {listener}: nobody could log in; it has to be "
            f"{_LEAST_LOGIN} or more, and there is no size that stands for any"
        )
    if "OAUTHBEARER" in config.mechanisms(listener):
        problems += _tokens_of_issuers(config, listener)
    if "GSSAPI" in config.mechanisms(listener):
        problems = problems or _tickets(config, listener)
    return problems


def _handler(config: Config, listener: str, mechanism: str) -> list[str]:
    handler = config.for_mechanism(listener, mechanism, _HANDLER)
    if not handler or (mechanism == "OAUTHBEARER" and handler in _OF_SIGNED_TOKENS):
        return []
    return [f"{_HANDLER}={handler} for {mechanism}: kafkad runs no Java, and has only {_OF_SIGNED_TOKENS[0]}"]


def _tokens_of_issuers(config: Config, listener: str) -> list[str]:
    """By what tokens of OAUTHBEARER are verified."""
    setting = "sasl.oauthbearer.jwks.endpoint.url"
    url = str(config.for_mechanism(listener, "OAUTHBEARER", setting) or "")
    if url:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            return [f"{setting} needs the Python packages PyJWT and cryptography: pip install PyJWT cryptography"]
        return [] if url.startswith(("https://", "file:///")) else [f"{setting}={url}: expected https://… or file:///…"]
    if config.bool("kafkad.oauthbearer.unsecured") and not config.for_mechanism(listener, "OAUTHBEARER", _HANDLER):
        return []
    problem = (
        f"listener {listener} has OAUTHBEARER and no keys to verify tokens with: set {setting} to those of the issuer "
        "(or, for trials without any security, kafkad.oauthbearer.unsecured=true)"
    )
    return [problem]


def _jaas(config: Config, listener: str, mechanism: str) -> str | None:
    """What is wrong with what JAAS says of a mechanism."""
    try:
        module = config.jaas(listener, mechanism)
    except ValueError as error:
        return str(error)
    wanted = LOGIN_MODULES[mechanism]
    if mechanism == "GSSAPI" and module is None:
        return f"GSSAPI, which is meant where sasl.enabled.mechanisms is not set, has no keys: {_KEYTAB}"
    if module is None:
        return f'PLAIN has no users: {wanted} required user_NAME="PASSWORD";' if mechanism == "PLAIN" else None
    if module.module == wanted:
        return None
    found = (
        module.module if module.module in LOGIN_MODULES.values() else "its module"
    )  # else a part of a secret, perhaps
    return f"{found} does not belong to {mechanism}, {wanted} does"


def _tickets(config: Config, listener: str) -> list[str]:
    """By what tickets of Kerberos are accepted, and what becomes of the names in them."""
    from kafkad.config.local_names import LocalNames

    module = config.jaas(listener, "GSSAPI")
    assert module is not None
    principal = module.options.get("principal", "")
    if not module.options.get("keyTab") or not re.fullmatch(r"[^/@]+/[^/@]+@[^/@]+", principal):
        return [f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config: expected {_KEYTAB}"]
    setting = "sasl.kerberos.principal.to.local.rules"
    rules = config.for_listener(listener, setting)
    assert isinstance(rules, tuple)
    try:
        LocalNames.of(rules, principal)
    except ValueError as error:
        return [f"{setting}: {error}"]
    if find_spec("gssapi") is None:
        return [f"GSSAPI of listener {listener} needs the Python package gssapi: pip install gssapi"]
    return []


def _keys(config: Config) -> list[str]:
    try:
        bound = config.listeners
    except ValueError:
        return []  # said already
    problems = [
        f"listener {endpoint.listener} needs a key: set ssl.keystore.location, or listener.name."
        f"{endpoint.listener.lower()}.ssl.keystore.location"
        for endpoint in bound
        if endpoint.protocol in ENCRYPTED and not _has_key(config, endpoint.listener)
    ]
    if config.http_over_tls and not _has_key(config, "HTTP"):
        problems.append("http.listener: https needs ssl.keystore.location, or listener.name.http.ssl.keystore.location")
    return problems


def _has_key(config: Config, listener: str) -> bool:
    return any(config.for_listener(listener, name) for name in ("ssl.keystore.location", "ssl.keystore.key"))


def _stores_named_twice(config: Config) -> list[str]:
    """A start can do with those of the file, but what is changed may not bring it about."""
    try:
        listeners = config.encrypted_listeners
    except ValueError:
        return []  # said already
    return [
        f"listener {listener} has {location} and {inline}, from the file or a dynamic setting: leave one of them out"
        for listener in listeners
        for location, inline in _STORES
        if config.for_listener(listener, location) and config.for_listener(listener, inline)
    ]


def _inter_broker(config: Config, advertised: set[str]) -> list[str]:
    if config.value("inter.broker.listener.name") and config.is_set("security.inter.broker.protocol"):
        return ["only one of inter.broker.listener.name and security.inter.broker.protocol should be set"]
    if config.inter_broker_listener not in advertised:
        names = ", ".join(sorted(advertised))
        missing = f"inter-broker listener {config.inter_broker_listener} is not in advertised.listeners ({names})"
        return [f"{missing}; set inter.broker.listener.name to one of them"]
    return _control_plane(config, advertised)


def _own_login(config: Config) -> list[str]:
    """Of a broker that logs in at others."""
    mechanism, listener = config.str("sasl.mechanism.inter.broker.protocol"), config.inter_broker_listener
    enabled = config.mechanisms(listener)
    if mechanism not in enabled:
        names = ", ".join(enabled)
        return [f"sasl.mechanism.inter.broker.protocol={mechanism} is not enabled at listener {listener}, only {names}"]
    handler = config.for_mechanism(listener, mechanism, _LOGIN_HANDLER)
    if handler and (mechanism != "OAUTHBEARER" or handler not in _OF_OWN_TOKENS):
        return [f"{_LOGIN_HANDLER}={handler} for {mechanism}: kafkad runs no Java, and has only {_OF_OWN_TOKENS[0]}"]
    if mechanism == "GSSAPI" or mechanism not in LOGIN_MODULES or _jaas(config, listener, mechanism) is not None:
        return []  # what is wrong with it is said already
    module = config.jaas(listener, mechanism)
    if mechanism == "OAUTHBEARER":
        return _own_token(config, listener, module)
    if module is None or module.username is None or module.password is None:
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        return [f"{name} needs username and password: brokers log in at each other with them"]
    unknown = _unknown_to_itself(config) if config.is_of_host else None
    return [] if unknown is None else [unknown]


def _unknown_to_itself(config: Config) -> str | None:
    """Why a broker is refused by one with the same line of PLAIN; for a line that is good otherwise. A dynamic one is
    that broker's own."""
    listener = config.inter_broker_listener
    if listener not in config.login_listeners or config.str("sasl.mechanism.inter.broker.protocol") != "PLAIN":
        return None
    module = config.jaas(listener, "PLAIN")
    if module is None or module.username is None or module.users.get(module.username) == module.password:
        return None
    name = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
    if config.at(Source.DYNAMIC_BROKER_CONFIG, name) is not None:
        return None
    return f"{name}: its username is none of its users (user_NAME) by that password: brokers refuse each other"


def _own_token(config: Config, listener: str, module: LoginModule | None) -> list[str]:
    """Where a broker has the token from by which it logs in at others."""
    setting = "sasl.oauthbearer.token.endpoint.url"
    url = str(config.for_mechanism(listener, "OAUTHBEARER", setting) or "")
    if url.startswith("file:///"):
        return []
    if not url.startswith("https://"):
        own = f"listener.name.{listener.lower()}.{setting}"
        said = f"{setting}={url}" if url else "sasl.mechanism.inter.broker.protocol=OAUTHBEARER"
        return [
            f"{said}: set {own} to where brokers get the token they log in with: https://… of the issuer, or file:///…"
        ]
    if module is None or not (module.options.get("clientId") and module.options.get("clientSecret")):
        name = f"listener.name.{listener.lower()}.oauthbearer.sasl.jaas.config"
        return [f"{name} needs clientId and clientSecret: {url} gives brokers their token for them"]
    return []


def _control_plane(config: Config, advertised: set[str]) -> list[str]:
    listener = config.control_plane_listener
    if listener is not None and listener not in advertised:
        names = ", ".join(sorted(advertised))
        return [f"control.plane.listener.name: {listener} is not in advertised.listeners ({names})"]
    if listener == config.inter_broker_listener:
        return [f"control.plane.listener.name: {listener} is the inter-broker listener too; they have to be two"]
    return []


def _numbers(config: Config) -> list[str]:
    threads = config.int("log.cleaner.threads")
    rules = (
        (
            config.int("socket.send.buffer.bytes") >= -1 and config.int("socket.receive.buffer.bytes") >= -1,
            "socket.send.buffer.bytes and socket.receive.buffer.bytes must be at least -1",
        ),
        (
            config.int("max.connections.per.ip") > 0 or bool(config.str("max.connections.per.ip.overrides")),
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        ),
        (
            not 0 < config.long("queued.max.request.bytes") < config.int("socket.request.max.bytes"),
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        (len(config.log_dirs) > 0, "log.dirs names no directory"),
        (threads >= 1, "Log cleaner threads should be at least 1"),
        (
            config.long("log.cleaner.dedupe.buffer.size") // max(threads, 1) > _LEAST_DEDUPE_BUFFER,
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            0 <= config.int("offsets.topic.compression.codec") < len(_CODECS),
            f"offsets.topic.compression.codec must be 0 to {len(_CODECS) - 1}: {', '.join(_CODECS)}",
        ),
    )
    broken = [sentence for holds, sentence in rules if not holds]
    return broken + _broker_id(config) + _rolling(config) + _retention(config) + _ip_overrides(config)


def _broker_id(config: Config) -> list[str]:
    """One above the reserved ones could be made up for another broker."""
    number, highest = config.broker_id, config.int("reserved.broker.max.id")
    if number < -1:
        return ["broker.id must be at least -1"]
    if number <= highest or not config.bool("broker.id.generation.enable"):
        return []
    remedy = "raise that, or set broker.id.generation.enable=false"
    return [f"broker.id={number} must not be greater than reserved.broker.max.id={highest}: {remedy}"]


def directories_with_two_names(config: Config) -> list[str]:
    """Looks at the disks, so it is only for a start: they cannot change while the broker runs."""
    first: dict[str, str] = {}
    problems = []
    for path in dict.fromkeys(map(os.path.abspath, config.log_dirs)):
        other = first.setdefault(os.path.realpath(path), path)
        if other != path:
            problems.append(f"log.dirs names one directory twice: {other} and {path}")
    return problems


def _waits(config: Config) -> list[str]:
    """Whoever waits has to be told before the other side gives up."""
    fetch_ms, delay_ms = (
        config.int("replica.fetch.wait.max.ms"),
        config.int("connection.failed.authentication.delay.ms"),
    )
    idle_ms = config.long("connections.max.idle.ms")
    problems = []
    if fetch_ms > config.int("replica.socket.timeout.ms"):
        problems.append(
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
            "socket timeouts"
        )
    if fetch_ms > config.long("replica.lag.time.max.ms"):
        problems.append(
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
            "frequent changes in ISR"
        )
    if 0 <= idle_ms <= delay_ms:
        problems.append(
            f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
            f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
        )
    return problems


def _rolling(config: Config) -> list[str]:
    return [
        f"{name} must be greater than or equal to {least}"
        for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0))
        if config.value(name) is not None and config.long(name) < least
    ]


def _retention(config: Config) -> list[str]:
    """-1 is for ever; nothing would live for 0. Only the finest unit that is set counts."""
    names = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    name = next(name for name in names if config.value(name) is not None)
    return [f"{name} must be unlimited (-1) or, greater than or equal to 1"] if config.value(name) == 0 else []


def _ip_overrides(config: Config) -> list[str]:
    try:
        hosts = config.max_connections_per_ip_overrides()
    except ValueError as error:
        return [str(error)]
    impossible = [host for host in hosts if not _can_be_a_host(host)]
    return [f"max.connections.per.ip.overrides: {host!r} cannot be the name of a host" for host in impossible]


def _can_be_a_host(name: str) -> bool:
    try:
        name.encode("idna")  # as a look-up of the name does
    except UnicodeError:
        return False
    return True


def _http(config: Config) -> list[str]:
    try:
        _ = config.http_listener
    except ValueError as error:
        return [str(error)]
    if config.http_over_tls and config.int("kafkad.brokers") > 1:
        return ["http.listener: https is not there for several brokers of a host (kafkad.brokers); use http"]
    return []


def _passwords(config: Config) -> list[str]:
    problem = problem_of_encoder(config)
    return [problem] if problem is not None else []


def _zookeeper(config: Config) -> list[str]:
    """Nothing where it is not used: the file may still be that of a Kafka which uses it."""
    if not config.value("zookeeper.connect"):
        return []
    try:
        _ = config.zookeeper
    except ValueError as error:
        return [f"zookeeper.connect={config.value('zookeeper.connect')}: {error}"]
    if config.inter_broker_protocol < OLDEST:
        speaks = f"kafkad speaks those of {OLDEST.major}.{OLDEST.minor} to 3.9 with other brokers"
        found = config.value("inter.broker.protocol.version")
        return [f"inter.broker.protocol.version={found}: {speaks}; raise it on all of them first"]
    return _zookeeper_login(config)


def _zookeeper_login(config: Config) -> list[str]:
    setting = "kafkad.zookeeper.sasl.jaas.config"
    try:
        login = config.zookeeper_login
    except ValueError as error:
        return [f"{setting}: {error}"]
    if login is not None and login.module != ZOOKEEPER_MODULE:
        return [f"{setting}: {login.module} is none that kafkad has, {ZOOKEEPER_MODULE} is"]
    if login is not None and not (login.username and login.password):
        return [f'{setting}: expected {ZOOKEEPER_MODULE} required username="NAME" password="PASSWORD";']
    by_certificate = config.bool("zookeeper.ssl.client.enable") and config.value("zookeeper.ssl.keystore.location")
    if config.bool("zookeeper.set.acl") and login is None and not by_certificate:
        certificate = "zookeeper.ssl.client.enable with zookeeper.ssl.keystore.location"
        return [f"zookeeper.set.acl: ZooKeeper has to know who this broker is; set {setting}, or {certificate}"]
    return []
