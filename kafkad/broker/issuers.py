"""The issuers whose tokens log in by OAUTHBEARER: their keys, shared by the listeners that name the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.security.oauth_token import Expected, SignedTokens, UnsecuredTokens, Verify
from kafkad.security.oauthbearer import OAUTHBEARER
from kafkad.timers import Timers
from kafkad.together import together

if TYPE_CHECKING:
    from kafkad.security.jwks import Jwks, JwksSettings


class Issuers:
    """Keys are read from `start` on."""

    def __init__(self, threads: Executor, clock: Clock, timers: Timers) -> None:
        self._threads = threads
        self._clock = clock
        self._timers = timers
        self._keys: dict[JwksSettings, Jwks] = {}
        self._named: dict[str, JwksSettings] = {}
        """By listener, which keys it verifies tokens by."""
        self._started = False
        self.on_asked: list[Callable[[], None]] = []
        """Called whenever one of them has been asked for the first time, whether there was an answer or not."""

    @contextmanager
    def naming_anew(self, listener: str) -> Iterator[None]:
        """Meanwhile `verify_at` is called for this listener, should it still take tokens. Keys that no listener names
        after that are read no more."""
        self._named.pop(listener, None)
        yield
        for settings in self._keys.keys() - set(self._named.values()):
            self._keys.pop(settings).retire()

    def verify_at(self, config: Config, listener: str) -> Callable[[], Verify | None]:
        """By the settings of this listener. ValueError if by them no token can be verified: the mechanism may be added
        while the broker runs, and its keys may not."""
        user_claim = str(config.for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.sub.claim.name"))
        url = config.for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.url")
        if not url:
            if not config.bool("kafkad.oauthbearer.unsecured"):
                raise ValueError("it has no sasl.oauthbearer.jwks.endpoint.url, which needs a restart to change")
            unsecured = UnsecuredTokens(Expected(user_claim=user_claim, skew_ms=0), self._clock.now_ms)
            return lambda: unsecured
        from kafkad.security.jwks import Jwks, JwksSettings, reader  # a broker without issuers needs no HTTP

        audiences = config.for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.expected.audience")
        issuer = config.for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.expected.issuer")
        expected = Expected(
            audiences if isinstance(audiences, tuple) else (),
            str(issuer) if issuer else None,
            user_claim,
            config.int_for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.clock.skew.seconds") * 1000,
        )
        settings = JwksSettings(
            str(url),
            config.int_for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            config.int_for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            config.int_for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            trusted=_trusted(config, listener),
        )
        if settings not in self._keys:
            read = reader(settings)
            added = Jwks(settings, read, self._threads, self._clock, self._timers, self._tell)
            self._keys[settings] = added
            if self._started:
                added.start()
        self._named[listener] = settings
        keys = self._keys[settings]
        signed = SignedTokens(expected, lambda: keys.keys, self._clock.now_ms, keys.missed)
        return lambda: signed if keys.asked.is_set() else None

    def start(self) -> None:
        self._started = True
        for keys in self._keys.values():
            keys.start()

    async def asked(self) -> None:
        """Returns when each has been asked once: until then, its tokens have to wait."""
        for keys in list(self._keys.values()):
            await keys.asked.wait()

    async def stop(self) -> None:
        await together(keys.stop() for keys in self._keys.values())

    def _tell(self) -> None:
        for told in self.on_asked:
            told()


def problems(config: Config) -> Iterator[str]:
    """For `--check`: what is wrong with files that have the keys of an issuer, or vouch for one. No issuer is asked."""
    for listener in config.listeners_with(OAUTHBEARER):
        url = str(config.for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.url") or "")
        if not url:
            continue
        from kafkad.security.issuer import answer_of, context_of
        from kafkad.security.oauth_token import keys_of

        try:
            if url.startswith("file:"):
                keys, why = keys_of(answer_of(url))
                if not keys:
                    raise ValueError("; ".join(["it has no key by which tokens can be verified", *why]))
            else:
                context_of(_trusted(config, listener))
        except (OSError, ValueError) as error:
            yield f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url={url}: {error}"


def _trusted(config: Config, listener: str) -> str | None:
    jaas = config.jaas(listener, OAUTHBEARER)
    return jaas.options.get("ssl.truststore.location") if jaas is not None else None
