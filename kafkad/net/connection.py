"""One client connection: bytes become frames, replies become bytes, in the order of the requests.

Rules:
- One request of a connection is worked on at a time; what follows it waits in the kernel or in `_rest`. With a
  `DeferredReply` those go on that have arrived with it, and all their replies leave together.
- The first of the requests that arrive together is answered at once. Those behind it have a share of the loop's turn
  and of memory for replies; when it is used up, what has been answered is sent and the rest waits in the lane.
- A large reply leaves piece by piece: at first at once, then in the lane, however fast its peer takes it.
- While a reply has not left completely, nothing more is read or answered: a peer that does not read costs one share.
- Memory is owned only for a frame that is partial, and only as much as has really arrived; all connections together
  have a bound (`queued`).
- A peer that trickles wakes nobody: the kernel keeps what arrives until a frame is there, or much more of it.
- Of a peer that is muted nothing is read or answered for a while; what has been answered leaves.
- A frame that cannot be read ends the connection, but not before the replies to what came before it have left.
- Before a login a door stands where the dispatcher would: it says which frames are read, and may end the connection
  with an answer that waits. Until then nothing of the peer is kept, and memory for its frames is that of the lobby.
  A frame that the door does not take yet waits here.
"""

from __future__ import annotations

import errno
import logging
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkad.net.awake import NEVER
from kafkad.net.greetings import other_protocol
from kafkad.net.reply import (
    BYTES,
    NOT_TAKEN,
    PENDING,
    Bytes,
    FileRange,
    NotTaken,
    Part,
    Pending,
    Reply,
    UnsentRange,
    cut_off,
    gathered,
    joined,
    memory_of,
    size_of,
    unsent,
)
from kafkad.net.transport import MeasuredTransport, has_more
from kafkad.turns import LEAST_S

if TYPE_CHECKING:
    from kafkad.net.server import Listener
    from kafkad.net.transport import Transport
    from kafkad.timers import Timer

log = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_size_at = _SIZE.unpack_from
_SMALLEST_FRAME = 8  # api key, version, correlation id
SMALL_FRAME = 64 * 1024
"""Copying what has arrived of such a frame costs less than a buffer of its own."""
_MOST_REPLIED = 256 * 1024
"""Replies to requests that arrived together are sent once they have so many bytes, before the next is answered."""
_WORTH_WAKING = 256 * 1024
_MOST_READ_AT_END = 4
_LAST_REPLY_MS = 200
"""From a reply that ends the connection to that end: clients miss one that comes together with it."""


OnReply = Callable[[Reply | None], Reply | None]
"""Called with the reply when it is there; the one that leaves is what it returns."""


class DeferredReply:
    """Returned by a dispatcher when its work is done and only the reply has to wait, for `settle`."""

    __slots__ = ("_connection", "on_reply", "reply")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.reply: Reply | None = None
        self.on_reply: OnReply | None = None

    def settle(self, reply: Reply | None) -> None:
        self.reply = reply if self.on_reply is None else self.on_reply(reply)
        self._connection.settled()


_NO_REPLIES: Final[list[Reply | DeferredReply]] = []
Answer = Reply | DeferredReply | Pending | NotTaken | None
Serve = Callable[["Connection", memoryview, int, int], Answer]
"""What one frame is handed to: the dispatcher, or what stands before it. Ending, and no other error."""


class Ending(Exception):
    """Raised where a frame is looked at: nothing more is read. When the replies to what came before have left, and
    after so long, this one leaves too, and the connection closes soon after it."""

    def __init__(self, after_ms: float = 0, reply: bytes | None = None) -> None:
        super().__init__(after_ms)
        self.after_ms = after_ms
        self.reply = reply


class Door(Protocol):
    """What frames are handed to instead of the dispatcher, until it lets the connection in."""

    def __call__(self, connection: Connection, view: memoryview, at: int, end: int) -> Answer: ...
    def check_size(self, connection: Connection, size: int) -> None:
        """Of each frame that is not whole yet, or too small or too large for a request. Raises Ending."""

    def closed(self, connection: Connection) -> None:
        """The connection has ended at the door."""


class Connection:
    """Made by a Listener for each accepted socket; closes itself when the peer or a frame gives reason to."""

    __slots__ = (
        "_awaited",
        "_awaits_room",
        "_busy",
        "_dispatch",
        "_door",
        "_ending",
        "_have",
        "_keeps",
        "_large",
        "_leaves",
        "_lowest",
        "_muted",
        "_out",
        "_partial",
        "_paused",
        "_queued",
        "_queued_s",
        "_replies",
        "_rest",
        "_served",
        "_stranger",
        "_transport",
        "closed",
        "fd",
        "held",
        "host",
        "last_active",
        "listener",
        "on_reply",
        "peer",
        "port",
        "waited_us",
    )

    def __init__(self, listener: Listener, transport: Transport, host: str, port: int) -> None:
        self.listener = listener
        self.host = host
        self.port = port
        self.fd = transport.fileno()
        self.closed = False
        self.last_active = listener.tick
        self.peer: Any = None
        """The peer, created by the dispatcher and kept for it."""
        self.on_reply: OnReply | None = None
        """For the answer to a PENDING request."""
        self._dispatch: Serve = listener.dispatch
        self._door: Door | None = None
        self._stranger = listener.login
        """It has not come through the door yet."""
        self._transport = transport
        self._partial: bytes | None = None
        self._large: memoryview | None = None
        self._rest: memoryview | None = None
        """Requests that have arrived and wait for their turn; the last of them may be partial."""
        self._queued = False
        self._queued_s = NEVER
        self.waited_us = 0
        """The time for which the request at hand, and those served with it, waited in the lane."""
        self.held = 0
        """Bytes of requests that are kept here."""
        self._keeps = False
        """The frame in `_large` is needed until its reply is there."""
        self._have = 0
        self._lowest = 1
        self._out: deque[Part] | None = None
        self._busy = False
        self._awaited = 0
        self._ending: Ending | None = None
        """What is left to do before it closes; nothing is read any more."""
        self._replies: list[Reply | DeferredReply] = _NO_REPLIES
        self._served = NEVER
        self._paused = False
        self._leaves = False
        """It closes instead of being read again, if its client waits for nothing then."""
        self._muted: Timer | None = None
        self._awaits_room = False
        """The loop calls when the socket has room. What is left in `_out` without that waits for a turn in the lane."""

    def on_readable(self) -> None:
        if self._busy or self._out or self._awaited or self._rest is not None:
            self._pause()
            return
        listener = self.listener
        partial, large = self._partial, self._large
        try:
            if large is not None:
                view, have = large, self._have
                if listener.queued.full and not self._stranger and not self._may_go_on(len(large) - have):
                    self._pause()
                    return
                got = self._transport.recv_into(large[have:])
            elif partial is not None:
                view, have = listener.shared, len(partial)
                view[:have] = partial
                got = self._transport.recv_into(view[have:])
            else:
                view, have = listener.shared, 0
                got = self._transport.recv_into(view)
        except BlockingIOError:
            if self._send_own() and self._transport.pending:
                self._go_on()
            return
        except OSError:
            got = 0
        if not got:
            self.close()
            return
        self.last_active = listener.tick
        awake = listener.awake
        now = awake.clock()
        gap = now - self._served
        lane = listener.lane
        left = lane.left
        if self._serve(view, have + got, now + max(left, LEAST_S)) or self._transport.pending:
            self._go_on()
        self._served = awake.served(gap)
        lane.left = left - (self._served - now)

    def reply(self, reply: Reply | None) -> None:
        """The answer to a request that was PENDING; None where the protocol has none."""
        if self.closed:
            return
        self._busy = False
        self.last_active = self.listener.tick
        if self._keeps:
            self._keeps = False
            self._give_back()
            self._hold(0)
        if self.on_reply is not None:
            on_reply, self.on_reply = self.on_reply, None
            reply = on_reply(reply)
        if self._awaited:
            if reply is not None:
                self._replies.append(reply)
            return
        if reply is not None:
            self._send(reply)
        self._go_on()

    def end(self) -> None:
        """The request at hand has no answer, PENDING or not: it closes when the replies to those before have left."""
        may_reply = not self._busy or self._awaited or self._out
        self._busy = False
        self._ending = Ending(_LAST_REPLY_MS if may_reply else 0)
        self.listener.loop.call_soon(self._read_no_more)

    def settled(self) -> None:
        """One of the replies that are waited for has come; all of them leave with the last."""
        self._awaited -= 1
        if self._awaited or self.closed:
            return
        self.last_active = self.listener.tick
        replies, self._replies = self._replies, _NO_REPLIES
        self._send_together(replies)
        self._go_on()

    def own(self, frame: memoryview) -> memoryview:
        """The same bytes, for as long as the reply to them is PENDING: otherwise they are received over."""
        if self._large is None:
            return memoryview(bytearray(frame))
        self._keeps = True
        return frame

    def mute(self, ms: float) -> None:
        """Read and answer nothing more for so long. Where it is muted already, the longer of both counts."""
        if self.closed:
            return
        until_ms = self.listener.clock.monotonic_ms() + ms
        if self._muted is not None:
            if self._muted.deadline_ms >= until_ms:
                return
            self._muted.cancel()
        self._muted = self.listener.timers.at(until_ms, self.unmute)
        self._pause()

    def measure(self, spent: Callable[[int], None] | None) -> None:
        """From now on `spent` is told for how many nanoseconds its bytes were received and sent; None: nobody is."""
        transport = self._transport
        if isinstance(transport, MeasuredTransport):
            if spent is None:
                self._transport = transport.below
            else:
                transport.spent = spent
        elif spent is not None:
            self._transport = MeasuredTransport(transport, spent)

    def unmute(self) -> None:
        """Read and answer on: its time is up, or need not be."""
        if self._muted is not None and not self.closed:
            self._muted.cancel()
            self._muted = None
            self.last_active = self.listener.tick
            self._go_on()

    def guard(self, door: Door) -> None:
        """The door decides what is done with frames from now on."""
        self._dispatch = self._door = door

    def let_in(self, dispatch: Serve) -> None:
        """Through the door: frames go to `dispatch` from now on."""
        self._dispatch, self._door = dispatch, None
        if self._stranger:
            self._stranger = False
            self.listener.queued.change(self.held)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        loop = self.listener.loop
        loop.remove_reader(self.fd)
        if self._awaits_room:
            loop.remove_writer(self.fd)
        self._transport.close()
        if self._muted is not None:
            self._muted.cancel()
        self.listener.queued.unread(self, 0)
        self._out = self._partial = self._rest = None
        self._give_back()
        self._hold(0)
        if self._door is not None:
            self._door.closed(self)
        self.peer.closed()
        self.listener.forget(self)

    def leave(self) -> None:
        """Close it at the next moment in which its client waits for no answer and nothing of it has arrived. That may
        be now, or not before it is asked again."""
        if not self.closed:
            self._leaves = True
            self._pause()
            self._go_on()

    @property
    def address(self) -> str:
        """The client's address, for log lines. Made when asked for: thousands of connections say nothing for hours."""
        return f"{self.host}:{self.port}"

    @property
    def subject(self) -> str | None:
        """The user that its certificate names."""
        return self._transport.subject

    @property
    def muted(self) -> bool:
        return self._muted is not None

    @property
    def quiet(self) -> bool:
        """Nothing is being answered: it may be closed without anybody missing a reply."""
        return not self._busy and not self._out and not self._awaited and self._rest is None

    @property
    def is_being_answered(self) -> bool:
        """A request is being worked on, and not only the reply unread."""
        return self._busy or bool(self._awaited)

    def is_forsaken(self) -> bool:
        """Its client has gone, which shows only where the connection is read, and left nothing behind to be done."""
        return self._paused and self._rest is None and self._transport.has_ended()

    def has_lost_client(self) -> bool:
        """Nobody waits for the answer to the last request that has come, whether that has been noticed yet or not."""
        return self.closed or self._transport.has_ended()

    # -- frames ----------------------------------------------------------------------------------------------------

    def _serve(self, view: memoryview, have: int, until: float) -> bool:
        """Hand over the whole frames in view[:have], more than one only until then; keep the rest; send all replies
        together. Whether frames are left."""
        replies: list[Reply | DeferredReply] = []
        ending: Ending | None = None
        try:
            at = self._hand_over(view, have, replies, until)
            if not self.closed:
                self._keep(view, at, have)
        except Exception as error:
            ending = self._ending_for(error)
        if self.closed:
            return False
        if self._awaited:
            self._replies = replies
        elif len(replies) == 1 and type(replies[0]) is not DeferredReply:
            self._send(replies[0])  # type: ignore[arg-type]
        elif replies:
            self._send_together(replies)
        if ending is not None:
            if replies or self._busy:
                ending = Ending(max(ending.after_ms, _LAST_REPLY_MS), ending.reply)
            self._ending = ending
            self._read_no_more()
        return self._rest is not None

    def _ending_for(self, error: Exception) -> Ending:
        """Of an error while a frame was received or handled. It is kept, and with it nothing of where it came from."""
        if isinstance(error, Ending):
            return error.with_traceback(None)
        if isinstance(error, MemoryError):
            log.error("closing %s: not enough memory for its request", self.address)
        else:
            log.exception("closing %s: internal error while its request was received", self.address)
        return Ending()

    def _hand_over(self, view: memoryview, have: int, replies: list[Reply | DeferredReply], until: float) -> int:
        """Dispatch frame after frame; returns where the first one starts that is partial or has to wait."""
        at = replied = 0
        largest = self.listener.max_request_bytes
        while have - at >= 4:
            (size,) = _size_at(view, at)
            end = at + 4 + size
            if end > have or not _SMALLEST_FRAME <= size <= largest:
                self._check_size(size)
                if end > have:
                    break
            if at and (
                self.closed
                or replied > _MOST_REPLIED
                or self._muted is not None
                or self._ending is not None
                or self.listener.lane.clock() >= until
            ):
                break
            reply = self._dispatch(self, view, at + 4, end)
            if reply is NOT_TAKEN:
                self._queued, self._queued_s = True, self.listener.lane.clock()
                break
            at = end
            if reply is PENDING:
                self._busy = True
                break
            if reply is not None:
                replies.append(reply)  # type: ignore[arg-type]
                if type(reply) is DeferredReply:
                    self._awaited += 1
                elif at < have:
                    replied += size_of(reply)  # type: ignore[arg-type]
        return at

    def take_turn(self, until: float) -> None:
        """A step of the lane, or of where a door has a frame wait."""
        self._queued = False
        rest = self._rest
        if self._busy or self._out or self._awaited or self._muted is not None or self._ending is not None:
            return
        if rest is not None:
            self.waited_us = int((self.listener.lane.clock() - self._queued_s) * 1e6)
            self._serve(rest, len(rest), until)
            self.waited_us = 0
            self._go_on()
        elif self._transport.pending and not self.closed:
            self.on_readable()

    def _check_size(self, size: int) -> None:
        if self._door is not None:
            self._door.check_size(self, size)
            return
        why = ""
        if size < _SMALLEST_FRAME:
            why = f"a frame of {size} bytes cannot hold a request header"
        elif size > self.listener.max_request_bytes:
            largest = self.listener.max_request_bytes
            why = f"a frame of {size} bytes is over socket.request.max.bytes={largest}{other_protocol(size)}"
        if why:
            log.warning("closing %s: refused: %s", self.address, why)
            raise Ending

    def _keep(self, view: memoryview, at: int, have: int) -> None:
        """Keep view[at:have]: whole frames as they are, for later; a part of one as an exact copy, or in a buffer of
        its own if it is large."""
        left = have - at
        if not left:
            self._partial = self._rest = None
            if self._keeps and self._busy:
                self.listener.queued.leave(self)
                return
            self._keeps = False
            if self._large is not None:
                self._give_back()
            else:
                self._wake_after(1)
            if self.held:
                self._hold(0)
            return
        total = 4 + _SIZE.unpack_from(view, at)[0] if left >= 4 else 0
        if 0 < total <= left:
            if self._large is not None:
                self._rest = view[at:have]
            else:
                self._rest = view[at:have] if view is self._rest else memoryview(bytearray(view[at:have]))
                left = len(self._rest.obj)  # type: ignore[arg-type]
            self._partial = None
        elif total <= SMALL_FRAME:
            self._partial, self._rest = bytes(view[at:have]), None
            self._wake_after(max(total - left, 1))
        else:
            self._keep_large(view, at, left, total)
        self._hold(left)

    def _keep_large(self, view: memoryview, at: int, left: int, total: int) -> None:
        if self._large is None:
            large = self.listener.buffers.take(total)
            large[:left] = view[at : at + left]
            self._large = large
            self._partial = self._rest = None
        self._have = left
        self._wake_after(min(total - left, _WORTH_WAKING))

    def _hold(self, size: int) -> None:
        if size != self.held:
            by, self.held = size - self.held, size
            if self._stranger:
                self.listener.lobby.hold(self, size)
            else:
                self.listener.queued.change(by)

    def _give_back(self) -> None:
        if self._large is not None:
            if not self._keeps:  # otherwise its handler still reads it
                self.listener.buffers.give(self._large)
            self._large = None
            self.listener.queued.leave(self)
            if not self.closed:
                self._wake_after(1)
        self._have = 0

    def _wake_after(self, size: int) -> None:
        """Have the kernel report the socket readable only when `size` more bytes of the frame are there, or its end."""
        if size != self._lowest:
            self._lowest = size
            self._transport.wake_after(size)

    def _may_go_on(self, missing: int) -> bool:
        """There is little memory left. A request whose rest has arrived, before which nobody is woken, is complete at
        once."""
        return missing <= _WORTH_WAKING or self.listener.queued.may_go_on(self)

    @property
    def announced(self) -> int:
        """The size of the large request that is under way; 0 if there is none."""
        return 0 if self._large is None else len(self._large)

    def resume(self) -> None:
        """There is memory again for its request."""
        self._go_on()

    def _go_on(self) -> None:
        """After a reply: requests that had already arrived come first, then the socket is read again."""
        if self.closed or self._busy or self._out or self._awaited or self._muted is not None:
            return
        if self._ending is not None:
            self._end_on(self._ending)
            return
        if self._rest is not None:
            self._queue()
            return
        if self._paused:
            if self._leaves:
                self._leaves = False
                if self._is_between_requests():
                    self.close()
                    return
            self._paused = False
            self.listener.loop.add_reader(self.fd, self.on_readable)
        if self._transport.pending:
            self._queue()

    def _is_between_requests(self) -> bool:
        """Nothing of another request has arrived, also not a part."""
        transport = self._transport
        is_begun = self._partial is not None or self._large is not None or transport.has_part
        return not (is_begun or transport.pending or has_more(self.fd))

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._queued_s = self.listener.lane.clock()
            self.listener.lane.add(self.take_turn)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.listener.loop.remove_reader(self.fd)

    def _read_no_more(self) -> None:
        """From now on the connection holds nothing but what it has to send."""
        if self.closed:
            return
        self._partial = self._rest = None
        self._give_back()
        self._hold(0)
        self._pause()
        self._go_on()

    def _end_on(self, ending: Ending) -> None:
        """The next step: to wait, to send the last reply, or to close."""
        if ending.after_ms:
            self._ending = Ending(0, ending.reply)
            self.mute(ending.after_ms)
        elif ending.reply is not None:
            self._ending = Ending(_LAST_REPLY_MS)
            self._send(ending.reply)
            self._go_on()
        else:
            self._read_what_came()
            self.close()

    def _read_what_came(self) -> None:
        """A socket that is closed with bytes unread takes back what was sent last."""
        with suppress(OSError):
            for _ in range(_MOST_READ_AT_END):
                if self.closed or not self._transport.recv_into(self.listener.shared):
                    return

    # -- replies ---------------------------------------------------------------------------------------------------

    def _send_together(self, replies: list[Reply | DeferredReply]) -> None:
        """Replies that are all there, in their order; serving one request may settle the reply to one before it."""
        settled = [each.reply if type(each) is DeferredReply else each for each in replies]
        ready: list[Reply] = [each for each in settled if each is not None]  # type: ignore[misc]
        if ready:
            self._send(ready[0] if len(ready) == 1 else joined(ready))

    def _send(self, reply: Reply) -> None:
        if self._out:
            self._out.extend(reply if type(reply) is list else [reply])  # type: ignore[list-item]
            return
        if type(reply) is not list:
            try:
                sent = self._transport.send(reply)  # type: ignore[arg-type]
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(reply):
                return
            self._out = deque([unsent(reply, sent)])  # type: ignore[arg-type]
            if not sent:
                self._wait_for_room()
                return
        else:
            self._out = deque(reply)
        self._write_at_once()

    def _write_at_once(self) -> None:
        """One piece, and what time is left for beside the lane."""
        lane = self.listener.lane
        begun = lane.clock()
        self._write(begun + lane.at_once() if lane.left > 0 else begun)
        lane.left -= lane.clock() - begun

    def _write(self, until: float) -> None:
        """Send what is queued until it is gone, the socket is full, or others are to have their turn."""
        out = self._out
        lane = self.listener.lane
        try:
            while out:
                data = gathered(out)
                part = out[0] if out else b""
                if isinstance(part, BYTES):
                    self._send_gathered(data, out)
                else:
                    self._send_range(data, part, out)
                if out and lane.clock() >= until and self._wait_for_turn(out):
                    return
        except BlockingIOError:
            self._wait_for_room()
            return
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                log.warning("closing %s: send failed: %s", self.address, error)
            self.close()
            return
        except MemoryError:
            log.error("closing %s: not enough memory for its reply", self.address)
            self.close()
            return
        self._out = None

    def _send_gathered(self, data: Bytes, out: deque[Part]) -> None:
        sent = 0
        try:
            sent = self._transport.send(data)
        finally:
            if sent < len(data):
                out.appendleft(unsent(data, sent))

    def _send_range(self, head: Bytes, part: FileRange, out: deque[Part]) -> None:
        """`part` is the first of `out`."""
        size, sent = len(head), 0
        try:
            sent = self._transport.send_range(head, part)
        finally:
            if sent < size:
                out.appendleft(unsent(head, sent))
        if not sent:
            raise cut_off(part)
        if sent == size + part.length:
            out.popleft()
        elif sent > size:
            out[0] = UnsentRange(part.file, part.position + sent - size, part.length - (sent - size))

    def _send_own(self) -> bool:
        """True if everything has left that the transport itself has to say; if not, it goes on when there is room."""
        try:
            if self._transport.flush():
                return True
        except OSError:
            self.close()
            return False
        self._wait_for_room()
        return False

    def _wait_for_room(self) -> None:
        self.listener.queued.unread(self, memory_of(self._out or ()) + self._transport.unsent)
        if not self._awaits_room:
            self._awaits_room = True
            self.listener.loop.add_writer(self.fd, self._on_writable)

    def _wait_for_turn(self, out: deque[Part]) -> bool:
        """Go on when others have had theirs. False if so much waits already that this has to leave now, for as long as
        its socket has room."""
        queued = self.listener.queued
        if not queued.takes_turns(self) and not queued.may_take_turns(self, memory_of(out)):
            return False
        self._stop_waiting_for_room()
        self.listener.lane.add(self._go_on_writing)
        return True

    def _stop_waiting_for_room(self) -> None:
        if self._awaits_room:
            self._awaits_room = False
            self.listener.loop.remove_writer(self.fd)

    def _on_writable(self) -> None:
        if self._out:
            if self.listener.lane.left <= 0 and self._wait_for_turn(self._out):
                return
            self._write_at_once()
        self._end_writing()

    def _go_on_writing(self, until: float) -> None:
        """A step of the lane."""
        if self._out:
            self._write(until)
            self._end_writing()

    def _end_writing(self) -> None:
        """After some of it has left, perhaps all."""
        self.last_active = self.listener.tick
        if self._out or self.closed or not self._send_own():
            return
        self.listener.queued.unread(self, 0)
        self._stop_waiting_for_room()
        self._go_on()
