"""Failures of commands: exit codes that scripts can rely on, and errors that people read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum

from kafkad.errors import METADATA_STORE, ErrorCode


class Exit(IntEnum):
    """The exit codes, with the same meaning in every command but those of `kctl etl`, which has its own."""

    DONE = 0
    FAILED = 1
    """A broker refused, or of several items some failed."""
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    """Nobody answered, or not in time."""
    UNAUTHORIZED = 5
    REFUSED = 6
    """Refused by kctl itself: a conflict, or nobody confirmed."""
    FINDINGS = 7
    """The command did its work, and what it looked at is not in order."""
    INTERRUPTED = 130


class KctlError(Exception):
    """An error in one line, with its place; `code` is the broker's name for it; `hints` say what to do next.

    `in_doubt`: what was asked for may have been done, by a request whose answer was lost. `spelled`: the commands in
    its hints say already which cluster they are for. `has_lines`: its texts may be several lines; in others a line's
    end is part of a name.
    """

    in_doubt = False
    spelled = False
    has_lines = False

    def __init__(
        self, what: str, *, exit_code: IntEnum = Exit.FAILED, code: str = "", hints: Sequence[str] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.exit_code = exit_code
        self.code = code
        self.hints = tuple(hints)

    @property
    def with_code(self) -> str:
        """What it is, and the broker's name for it, as a part of a line."""
        return f"{self.what} ({self.code})" if self.code else self.what

    @property
    def did_nothing(self) -> bool:
        """True if it is sure that nothing was done of what was asked for."""
        return not self.in_doubt and self.exit_code is not Exit.UNREACHABLE

    def with_hint(self, hint: str) -> KctlError:
        """The same, which says one thing more."""
        return self._retold(self.what, (*self.hints, hint))

    def reason_of(self, what: str) -> KctlError:
        """Another error, of which this is the reason."""
        return self._retold(f"{what}: {self.what}", self.hints)

    def _retold(self, what: str, hints: Sequence[str]) -> KctlError:
        other = KctlError(what, exit_code=self.exit_code, code=self.code, hints=hints)
        other.spelled = self.spelled
        return other


class Unreachable(KctlError):
    """This broker cannot be asked for anything; unless it is Disconnected, waiting does not help."""


class Disconnected(Unreachable):
    """This broker cannot be asked now; another may. `in_doubt`: it may have done what it was asked."""

    def __init__(
        self, what: str, *, exit_code: IntEnum = Exit.UNREACHABLE, hints: Sequence[str] = (), in_doubt: bool = False
    ) -> None:
        super().__init__(what, exit_code=exit_code, hints=hints)
        self.in_doubt = in_doubt


class OtherCluster(Unreachable):
    """A broker of another cluster is where one of ours should be, at `address`. It must not be asked for anything."""

    def __init__(self, address: str, theirs: str, ours: str, broker: int | None = None) -> None:
        """`broker`: who advertises the address."""
        where = address if broker is None else f"broker {broker} advertises {address}, which"
        hint = "bootstrap addresses have to be of one cluster"
        if broker is not None:
            hint = f"see advertised.listeners of broker {broker}"
        what = f"{where} is a broker of cluster {theirs}, not of {ours}"
        super().__init__(what, exit_code=Exit.REFUSED, hints=(hint,))
        self.address, self._theirs, self._ours = address, theirs, ours

    def advertised_by(self, broker: int) -> OtherCluster:
        return OtherCluster(self.address, self._theirs, self._ours, broker)


def did_you_mean(word: str, known: Sequence[str]) -> tuple[str, ...]:
    """A hint when `word` is close to something known."""
    from difflib import get_close_matches  # only a mistake pays for it

    close = [f'"{name}"' for name in get_close_matches(word, known, n=3, cutoff=0.6)]
    return (f"did you mean {' or '.join(close)}?",) if close else ()


_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.RESOURCE_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.LOG_DIR_NOT_FOUND,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
}
_UNREACHABLE = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.BROKER_NOT_AVAILABLE,
}
UNAUTHORIZED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
}
_REFUSED = {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.REASSIGNMENT_IN_PROGRESS}


MAY_STILL_BE_DONE = "it may still be carried out: check before you try again; kctl doctor looks for what holds it up"
"""The hint when a change has no answer."""
_WAIT_LONGER = "--timeout 60s waits longer"
_LOGIN = "log in as a principal that may do this: kctl contexts list, or --command-config FILE"
_ALLOW = "an administrator of the ACLs can see which one decides (acls check), and allow it: acls add --allow User:NAME"
_NEXT = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"{_ALLOW} --topic TOPIC with --consumer, --producer or --operation",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: f"{_ALLOW} --group GROUP with --operation Read (Describe to look, Delete)",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: f"{_ALLOW} --cluster with --operation Describe, Alter or AlterConfigs",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"{_ALLOW} --transactional-id ID with --operation Write",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: f"{_ALLOW} --delegation-token ID with --operation Describe",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "test the login step by step: kctl contexts test",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "choose another with -X sasl.mechanism, or set the "
    "broker's sasl.enabled.mechanisms",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer: set authorizer.class.name there",
    ErrorCode.POLICY_VIOLATION: "the brokers' create.topic.policy.class.name or alter.config.policy.class.name forbids "
    "it: ask for what the policy allows",
    ErrorCode.INVALID_CONFIG: "kctl configs describe --all shows names, values and what they may be",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name has 1 to 249 of a-z A-Z 0-9 . _ - and is neither . nor ..",
    ErrorCode.INVALID_REPLICATION_FACTOR: "it cannot exceed the number of brokers that are up: kctl brokers list",
    ErrorCode.TOPIC_ALREADY_EXISTS: "kctl topics describe shows it, kctl topics alter changes it",
    ErrorCode.TOPIC_DELETION_DISABLED: "the brokers have delete.topic.enable=false; kctl topics truncate empties it",
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes of the topic is less: kctl configs set topic/NAME "
    "max.message.bytes=… raises it",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas: kctl topics describe, "
    "kctl brokers list",
    ErrorCode.LEADER_NOT_AVAILABLE: "a broker that holds the partition is down: kctl brokers list, kctl doctor",
    ErrorCode.OFFSET_NOT_AVAILABLE: "its leader is new, and waits for followers to know what is committed: kctl topics "
    "describe shows whether enough are in sync",
    ErrorCode.NOT_CONTROLLER: "the controller is moving: try again; kctl cluster controller",
    ErrorCode.KAFKA_STORAGE_ERROR: "a log directory of that broker has failed, or its disk is full: kctl brokers "
    "log-dirs",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its partition of __consumer_offsets or __transaction_state has no leader: "
    "kctl topics describe",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is loading: try again, or wait longer with --timeout 60s",
    ErrorCode.REQUEST_TIMED_OUT: f"{MAY_STILL_BE_DONE}, and {_WAIT_LONGER}",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "kctl partitions status shows the moves, kctl partitions cancel ends them",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first: kctl groups members GROUP shows them",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic: kctl groups members GROUP",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "group.max.size of the brokers is the limit",
    ErrorCode.INVALID_SESSION_TIMEOUT: "group.min.session.timeout.ms and group.max.session.timeout.ms are the limits",
    ErrorCode.FENCED_INSTANCE_ID: "another member uses the same --instance",
    ErrorCode.PRODUCER_FENCED: "another producer uses the same --transactional-id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer uses the same --transactional-id",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is still completing: try again; kctl txns describe ID",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction.max.timeout.ms of the brokers is the limit",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "a quota limits such changes: kctl quotas list; try again later",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: _LOGIN,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: _LOGIN,
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support the version this needs: kctl brokers api-versions",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another --compression",
    ErrorCode.INVALID_TIMESTAMP: "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic are "
    "the limits",
    ErrorCode.INVALID_RECORD: "a compacted topic takes only records with a key",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "start a broker that was in sync; kctl partitions elect --unclean loses "
    "records",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the first broker of its replicas is down or lags: kctl brokers list",
}
"""The hint after a broker's refusal, where the command knows nothing better."""
SEE_TO_STORE = "see to the disk of kafkad.metadata.dir, or to ZooKeeper: /health of the brokers says what is wrong"
"""The hint when the metadata store does not answer, or does not write."""


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def exit_of(code: int) -> Exit:
    """The exit code after a broker answered `code`."""
    if code in _NOT_FOUND:
        return Exit.NOT_FOUND
    if code in _UNREACHABLE:
        return Exit.UNREACHABLE
    if code in UNAUTHORIZED:
        return Exit.UNAUTHORIZED
    return Exit.REFUSED if code in _REFUSED else Exit.FAILED


_DUMPS = ("Request Request(", "Request(processor=")
"""What Kafka's own message begins with where it has nothing to say but the request, with its buffer."""


def failure(
    code: int, what: str, message: str | None = None, hints: Sequence[str] = (), *, changes: bool = True
) -> KctlError:
    """A broker's refusal: `what` failed here, and what the broker said of it. `changes`: False if what was asked for
    could change nothing."""
    told = f"{what}: {message.rstrip('.')}" if message and not message.startswith(_DUMPS) else what
    hints = hints or next_step(code, message, changes=changes)
    return KctlError(told, exit_code=exit_of(code), code=code_name(code), hints=hints)


def next_step(code: int, message: str | None, *, changes: bool) -> tuple[str, ...]:
    """A hint for a code that a broker answered, with that message; none for codes that explain themselves."""
    if code == ErrorCode.REQUEST_TIMED_OUT and not changes:
        return (_WAIT_LONGER,)
    if code == ErrorCode.KAFKA_STORAGE_ERROR and message is not None and message.startswith(METADATA_STORE):
        return (SEE_TO_STORE,)
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION and message is not None and "collides with" in message:
        return ("names that differ only in . and _ would share their metrics: choose another",)
    return (_NEXT[code],) if code in _NEXT else ()  # type: ignore[index]  # an ErrorCode is its number


def of_file(error: OSError) -> KctlError:
    """The error of a file operation, in the system's words."""
    code = Exit.NOT_FOUND if isinstance(error, FileNotFoundError) else Exit.FAILED
    return KctlError(f"{os.fsdecode(error.filename)}: {error.strerror}", exit_code=code)


def exit_code(errors: Sequence[KctlError]) -> IntEnum:
    """The exit code of a command that did what it could: the errors' own code, or FAILED where they differ."""
    codes = {error.exit_code for error in errors}
    return Exit.DONE if not codes else codes.pop() if len(codes) == 1 else Exit.FAILED
