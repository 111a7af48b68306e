"""One blocking connection to one broker. Requests may be sent one after another before their answers are read.

Blocking sockets and a thread for each broker that is being opened: asyncio would cost more to import than most
commands run.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from select import select
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

from kafkad import __version__
from kafkad.errors import ErrorCode
from kafkad.wire.apis import APIS, response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.primitives import EncodeError, MalformedError
from kafkad.wire.schema import Request, read, span
from kctl.errors import Disconnected, Exit, KctlError, OtherCluster, Unreachable, code_name, of_file
from kctl.reach.access import Access
from kctl.settings import DEFAULT_TIMEOUT
from kctl.texts.spelling import command

if TYPE_CHECKING:
    from ssl import SSLError

R = TypeVar("R")

CONNECT_SECONDS = 3.0
_LONGEST_FRAME = 512 * 1024 * 1024
_SMALL_FRAME = 4 * 1024 * 1024
"""Larger ones are records, for the most part; they stay in the buffer that they were received in."""
_TLS_ALERTS = {0x150300, 0x150301, 0x150302, 0x150303}
"""The first bytes of a TLS alert, read as a length: over 336 MB. A TLS port answers so to anything but TLS."""
_OTHER_PORT = ("a TLS port? -X security.protocol=SSL or SASL_SSL", "or the port of something else?")
_SASL_HANDSHAKE = 17
_DESCRIBE_QUORUM = 55
_METADATA_WITH_CLUSTER_ID = 2
_LENGTH = Struct(">i")

_READING = ("Describe", "List", "Metadata", "ApiVersions", "Fetch", "FindCoordinator", "OffsetFetch", "OffsetForLeader")

_BY_NAME = {0: 12, 1: 12, 8: 9, 9: 9}
"""The last versions of Produce, Fetch, OffsetCommit and OffsetFetch that call topics by their names."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def only_reads(key: int) -> bool:
    """True if this API changes nothing, so that a request may be sent twice."""
    return APIS[key].name.startswith(_READING)


def is_kraft(versions: Mapping[int, tuple[int, int]]) -> bool:
    """True if a broker that serves these APIs is in KRaft mode: no other describes the quorum."""
    return _DESCRIBE_QUORUM in versions


class _Sent(NamedTuple):
    key: int
    version: int
    correlation: int
    response: type[Any]


class Connection:
    def __init__(
        self, sock: socket.socket, address: Address, client_id: str, patience: float = DEFAULT_TIMEOUT
    ) -> None:
        """`patience`: for how many seconds nothing of a request may go out; all of it may take longer."""
        self.address = address
        self._patience = patience
        self.versions: dict[int, tuple[int, int]] = {}
        self._socket = sock
        self._client_id = client_id
        self._correlation = 0
        self._sent: deque[_Sent] = deque()
        self._has_answered = False
        self._buffer = bytearray()

    def version_of(self, request: Request[Any] | type[Request[Any]]) -> int | None:
        """The highest version both sides know, of a request or its class; None: the broker does not serve it."""
        schema = request.__schema__
        served = self.versions.get(schema.key)
        if served is None:
            return None
        first, last = span(schema.versions)
        best = min(served[1], last, _BY_NAME.get(schema.key, last))
        return best if best >= max(served[0], first) else None

    def send(self, request: Request[Any], version: int | None = None) -> None:
        key = request.__schema__.key
        name = APIS[key].name
        if version is None:
            version = self.version_of(request)
        if version is None:
            what = f"broker {self.address} does not serve {name} in a version that kctl knows"
            raise KctlError(what, code=ErrorCode.UNSUPPORTED_VERSION.name)
        self._correlation += 1
        header = RequestHeader(key, version, self._correlation, self._client_id)
        try:
            frame = encode_request(header, request)
        except EncodeError as error:
            raise self._unsayable(name, version, error) from error
        try:
            self._send_all(frame)
        except OSError as error:
            raise self._broken(f"did not take {name} in time", f"before {name} was sent", error) from error
        self._sent.append(_Sent(key, version, self._correlation, response_class(key)))

    def _send_all(self, frame: bytes | bytearray) -> None:
        self._socket.settimeout(self._patience)
        left = memoryview(frame)
        while left:
            left = left[self._socket.send(left) :]

    def _unsayable(self, name: str, version: int, error: EncodeError) -> KctlError:
        """A wrong value, told by what the codec stumbled over; otherwise the version has no room for what is asked."""
        stumbled = error.__cause__
        if isinstance(stumbled, UnicodeEncodeError):
            return KctlError(f"{stumbled.object!a} is not UTF-8, so it cannot be a name in Kafka", exit_code=Exit.USAGE)
        if stumbled is not None:
            return KctlError(f"{name} cannot be sent: {stumbled}", exit_code=Exit.USAGE)
        what = f"broker {self.address} serves {name} only to version {version}, which does not support this: {error}"
        return KctlError(what, code=ErrorCode.UNSUPPORTED_VERSION.name)

    def receive(self, deadline: float) -> Any:
        """The answer to the oldest request that has none yet."""
        sent = self._sent.popleft()
        frame = self._frame(deadline, APIS[sent.key].name)
        try:
            correlation, at = read_response_header(sent.key, sent.version, frame)
            if correlation != sent.correlation:
                raise MalformedError(f"it has the number {correlation} and not {sent.correlation}")
            response, _ = read(sent.response, sent.version, frame, at)
            self._has_answered = True
        except MalformedError as error:
            self.close()
            name = APIS[sent.key].name
            raise Disconnected(
                f"broker {self.address} sent a malformed answer to {name}: {error}", in_doubt=True
            ) from error
        return response

    def receive_frame(self, deadline: float, what: str) -> bytes:
        return bytes(self._frame(deadline, what))

    def _frame(self, deadline: float, what: str) -> memoryview | bytes:
        """One frame. Read it before the next one is requested: a large one is in the shared buffer."""
        (length,) = _LENGTH.unpack(self._receive(4, deadline, what))
        if not 0 <= length <= _LONGEST_FRAME or length >> 8 in _TLS_ALERTS:
            self.close()
            raise _other_protocol(self.address)
        frame = self._receive(length, deadline, what)
        return bytes(frame) if length <= _SMALL_FRAME else frame  # many strings are read faster from bytes

    def _receive(self, size: int, deadline: float, what: str) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        at = 0
        try:
            while at < size:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                count = self._socket.recv_into(view[at:])
                if not count:
                    raise ConnectionResetError
                at += count
        except OSError as error:
            raise self._broken(f"did not answer {what} in time", f"instead of answering {what}", error) from error
        return view

    def call(self, request: Request[R], deadline: float, version: int | None = None) -> R:
        self.send(request, version)
        answer: R = self.receive(deadline)
        return answer

    def tell(self, request: Request[Any]) -> None:
        """Send what is never answered."""
        self.send(request)
        self._sent.pop()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def certificate_until_ms(self) -> int | None:
        """The time at which the broker's certificate expires; None without TLS."""
        certificate: dict[str, str] = getattr(self._socket, "getpeercert", dict)()
        if not certificate:
            return None
        import ssl

        return ssl.cert_time_to_seconds(certificate["notAfter"]) * 1000

    def is_stale(self) -> bool:
        """True if either side has closed it since the last answer, or the broker sent something nobody asked for."""
        if self._socket.fileno() < 0:
            return True
        return not self._sent and bool(select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()

    def _broken(self, late: str, when: str, error: OSError) -> Disconnected:
        self.close()
        if isinstance(error, TimeoutError):
            return Disconnected(
                f"broker {self.address} {late}",
                hints=("--timeout 60s waits longer",),
                in_doubt=True,
            )
        hints: tuple[str, ...] = ()
        if _is_of_tls(error):
            hints = ("it may want a certificate of the client, or another one: ssl.keystore.location",)
        elif self.versions and not self._has_answered:  # what Kafka does when ApiVersions is not followed by a login
            hints = ("a port that wants a login? -X security.protocol=SASL_PLAINTEXT or SASL_SSL",)
        elif not self.versions and type(self._socket) is socket.socket:
            hints = _OTHER_PORT
        did = f"closed the connection {when}"
        if not isinstance(error, ConnectionError):
            did = f"broke off {when}: {reason(error)}"
        return Disconnected(f"broker {self.address} {did}", hints=hints, in_doubt=True)


def _other_protocol(address: Address) -> Disconnected:
    return Disconnected(f"{address} does not speak the Kafka protocol", hints=_OTHER_PORT)


def _is_of_tls(error: OSError) -> TypeGuard[SSLError]:
    return getattr(error, "library", None) == "SSL"  # an SSLError; ssl itself is imported only where it is used


def reason(error: OSError) -> str:
    """The reason in lower case and without a number: `connection refused`."""
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if _is_of_tls(error):
        from kctl.reach.login import tls_reason

        return tls_reason(error)
    return (error.strerror or str(error) or type(error).__name__).lower()


def connect_seconds(left: float, *, alone: bool) -> float:
    """How long one address may take to accept a connection, out of the time that is left."""
    return min(opening_seconds(left, alone=alone), max(CONNECT_SECONDS, left / 4))


def opening_seconds(left: float, *, alone: bool) -> float:
    """How long one broker may take until it is ready for requests. All of the time that is left if it is `alone`;
    otherwise the others are waiting for that, and need time."""
    return left if alone else left / 2


def connect(
    address: Address, access: Access, deadline: float, *, alone: bool, cluster_id: str | None = None
) -> Connection:
    """Opened, secured, logged in, and told which versions it serves. Otherwise Disconnected, if that may pass, or
    another KctlError, such as a refused login. `alone`: no other broker waits for that one to be asked. `cluster_id`:
    the cluster that it has to be of, if that is known; OtherCluster if it is not."""
    try:
        begin = time.monotonic()
        left = max(deadline - begin, 0.001)
        sock = socket.create_connection(address, connect_seconds(left, alone=alone))
    except (OSError, UnicodeError) as error:
        raise trouble(address, error) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    until = begin + opening_seconds(left, alone=alone)
    try:
        if access.has_tls:
            from kctl.reach.login import secure

            sock = secure(sock, address.host, access, until)
        connection = _opened(sock, address, access, until, max(left, CONNECT_SECONDS))
        if cluster_id:  # what is asked then takes as long: a slow broker has half of the rest for each
            begin = time.monotonic()
            ensure_of_cluster(connection, cluster_id, begin + opening_seconds(deadline - begin, alone=alone))
        return connection
    except BaseException:
        sock.close()
        raise


def _opened(sock: socket.socket, address: Address, access: Access, deadline: float, patience: float) -> Connection:
    connection = Connection(sock, address, access.client_id, patience)
    ask_versions(connection, deadline)
    if access.has_sasl:
        from kctl.reach.login import authenticate, no_login

        if _SASL_HANDSHAKE not in connection.versions:  # kafkad says so; Kafka answers the handshake with an error
            raise no_login(access)
        authenticate(lambda message, version: connection.call(message, deadline, version), access, address.host)
    return connection


def ensure_of_cluster(connection: Connection, cluster_id: str, deadline: float) -> None:
    """OtherCluster if the broker tells the id of another one."""
    from kafkad.wire.messages.metadata import MetadataRequest

    if (connection.version_of(MetadataRequest) or 0) < _METADATA_WITH_CLUSTER_ID:
        return
    answer = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), deadline)
    ensure_same(cluster_id, answer.cluster_id, connection.address)


def ensure_same(ours: str | None, theirs: str | None, address: Address) -> None:
    """OtherCluster if the broker there says that it is of another cluster than ours. Old brokers, and some that are not
    Kafka, do not say."""
    if ours and theirs and theirs != ours:
        raise OtherCluster(str(address), theirs, ours)


def unreachable(broker: int, address: Address, error: KctlError, *, is_given: bool = False) -> Unreachable:
    """What keeps us from the broker at the address that it advertises: Disconnected only if it is `error` too.
    `is_given`: somebody gave us that address too, so that it is a good one."""
    if isinstance(error, OtherCluster):
        return error.advertised_by(broker)
    hints = error.hints
    if error.exit_code is Exit.UNREACHABLE and not is_given:
        hints += ("that is the address it advertises: see advertised.listeners of the broker if it is a wrong one",)
    where, what = str(address), error.what.removeprefix("broker ")
    told = what if what.startswith(where) else f"{where}  {error.what}"
    what = f"broker {broker} at {told}"
    if isinstance(error, Disconnected):
        return Disconnected(what, exit_code=error.exit_code, hints=hints)
    return Unreachable(what, exit_code=error.exit_code, code=error.code, hints=hints)


def answering(connections: Collection[Connection], deadline: float) -> list[Connection]:
    """Those with an answer to be received, or with none to come, as soon as there is one; at the deadline all."""
    closed = [connection for connection in connections if connection.fileno() < 0]
    seconds = max(deadline - time.monotonic(), 0.0)
    return closed or select(connections, [], [], seconds)[0] or list(connections)


def ask_versions(connection: Connection, deadline: float) -> None:
    """Kafka answers a version it does not know in v0, with an error: then that one is asked for."""
    from kafkad.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="kctl", client_software_version=__version__)
    for version in (3, 0):
        connection.send(request, version)
        connection._sent.clear()
        frame = connection.receive_frame(deadline, "ApiVersions")
        unknown = frame[4:6] == _UNSUPPORTED
        try:
            response, _ = read(ApiVersionsResponse, 0 if unknown else version, frame, 4)
        except MalformedError as error:  # it is the first answer: of something that is no broker
            raise _other_protocol(connection.address) from error
        if not unknown:
            break
    if response.error_code:
        raise Disconnected(f"{connection.address}  ApiVersions failed with {code_name(response.error_code)}")
    connection.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def connect_all(
    addresses: Sequence[Address], access: Access, deadline: float, *, alone: bool, cluster_id: str | None = None
) -> list[Connection | KctlError]:
    """All at once, each in a thread of its own, in the order of the addresses."""
    if len(addresses) == 1:
        return [_tried(addresses[0], access, deadline, alone, cluster_id)]
    from kctl.reach.at_once import at_once  # threads are nothing that one address pays for

    return at_once(lambda address: _tried(address, access, deadline, alone, cluster_id), addresses)


def connect_first(
    addresses: Sequence[Address], access: Access, deadline: float, *, alone: bool, cluster_id: str | None = None
) -> Connection:
    """The first that answers; what kept the others, if none does."""
    if len(addresses) == 1:
        result = _tried(addresses[0], access, deadline, alone, cluster_id)
        if isinstance(result, Connection):
            return result
        raise _nobody([result], access)
    from kctl.reach.at_once import AtOnce

    told: list[KctlError] = []
    attempts = AtOnce(lambda address: _tried(address, access, deadline, alone, cluster_id), addresses)
    for _ in addresses:
        _, result = attempts.next()
        if isinstance(result, Connection):
            attempts.abandon(_dropped)
            return result
        told.append(result)
    raise _nobody(told, access)


def _dropped(result: Connection | KctlError) -> None:
    if isinstance(result, Connection):
        result.close()


def _tried(
    address: Address, access: Access, deadline: float, alone: bool, cluster_id: str | None
) -> Connection | KctlError:
    try:
        return connect(address, access, deadline, alone=alone, cluster_id=cluster_id)
    except Exception as error:
        return trouble(address, error)


def trouble(address: Address, error: Exception) -> KctlError:
    """What keeps us from an address. A defect of kctl, too, is one of that address: others may be well."""
    if isinstance(error, KctlError):
        return error
    if isinstance(error, OSError):
        if error.filename:  # a store, or the file of a secret
            return of_file(error)
        return Disconnected(f"{address}  {reason(error)}")
    if isinstance(error, UnicodeError):  # a label of over 63 letters is no host name to Python's idna
        return Disconnected(f"{address}  no such host")
    return KctlError(f"{address}  {type(error).__name__}: {error}")


def _nobody(told: Sequence[KctlError], access: Access) -> KctlError:
    """One reason that is not the network, such as a wrong password, speaks for itself; another cluster's address does
    only where no other address could be one of ours."""
    for error in [error for error in told if not isinstance(error, OtherCluster)] or told:
        if error.exit_code is not Exit.UNREACHABLE:
            return error
    lines = [error.what for error in told]
    for error in told:
        lines.extend(hint for hint in error.hints if hint not in lines)
    lines.append(f"check: kctl {command('contexts test', *filter(None, [access.context]))}")
    return KctlError("no broker answered", exit_code=Exit.UNREACHABLE, hints=lines)
