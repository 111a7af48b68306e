"""The transactional ids of one partition of `__transaction_state`: applies its records and carries decisions out.

One write at a time for an id; until it is committed, and until all markers of an ended transaction are written, whoever
asks for the id is held back, for a short while, instead of being told to ask again. Requests of brokers are not held
back for markers: those about other ids wait behind them. Nothing of one step is written before the step ahead of it is
committed: prepared, markers, complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import TopicPartition
from kafkad.shard import level_of_refusal
from kafkad.timers import Timer, Timers
from kafkad.turns import Pieces
from kafkad.txn import records, transaction
from kafkad.txn.markers import Ending, MarkerQueues
from kafkad.txn.records import Damaged, Forgotten, Record
from kafkad.txn.transaction import (
    OK,
    ONGOING,
    PREPARED,
    AddPartitions,
    Answer,
    Asked,
    Cause,
    Decision,
    Moment,
    TimeOut,
    Transaction,
    Write,
    completed,
    fenced,
    is_forgettable,
    left_ms,
)

log = logging.getLogger(__name__)

OnEnd = Callable[[KafkaError | None], None]
WriteRecords = Callable[[Sequence[Record], OnEnd], None]
OnAnswer = Callable[[Answer], None]
Codes = dict[TopicPartition, ErrorCode]

HELD_MS = 100
"""How long a request waits for markers or another request of its id, before it is told to ask again. Its own record is
waited for so long where others wait behind it."""
ANSWERED_AFTER_MS = 20
"""How long the answer to EndTxn waits for markers; the end is decided, and comes without the client."""
_PAUSE_MS = 1_000
"""Before something that must happen in the end is tried again."""
_REFUSED_PAUSE_MS = 10_000
"""The same where the time of a transaction is up and no record is taken: as often as Kafka looks for such."""
_FORGOTTEN_A_TURN = 100
_LOOKED_AT_A_TURN = 500

_NOT_ASKED_FOR = (Cause.TIMED_OUT, Cause.FENCED)
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_WITHOUT_CONTROLLER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""For clients while no controller can give producer ids: all of them know it here, and ask again."""
_REFUSED_WRITE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The codes for clients; the shard has translated the others."""
_NOT_HERE = Answer(ErrorCode.NOT_COORDINATOR)
_TIMED_OUT = Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""For whom the record took too long, which may still be committed: whatever is asked again waits for that."""


class TransactionProbe:
    """What has happened since the broker was started."""

    __slots__ = ("completion_ms", "completions", "ended", "held")

    def __init__(self) -> None:
        self.ended: Counter[Cause] = Counter()
        self.held = 0
        self.completions = 0
        self.completion_ms = 0.0


class _Request:
    """One request, until it is answered."""

    __slots__ = ("asked", "client", "done", "held_until_ms", "new_id", "timer", "waits_for_markers", "written")

    def __init__(self, asked: Asked, done: OnAnswer, client: str, waits_for_markers: bool) -> None:
        self.asked = asked
        self.done: OnAnswer | None = done
        """None when it is answered: of a write that took too long that may be before the end."""
        self.waits_for_markers = waits_for_markers
        """False for one that others wait behind."""
        self.client = client
        self.new_id: int | None = None
        self.held_until_ms: float | None = None
        self.timer: Timer | None = None
        """Set while it is held, or waits for its record."""
        self.written = True
        """False while its record is on its way."""

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class TransactionMachine:
    """A `shard.Machine`."""

    def __init__(
        self,
        write: WriteRecords,
        write_all: WriteRecords,
        queues: MarkerQueues,
        *,
        writes_at_once: Callable[[], bool],
        when_sure: Callable[[Callable[[bool], None]], None],
        coordinator_epoch: Callable[[], int],
        take_producer_id: Callable[[], Awaitable[int]],
        level: Callable[[], int],
        clock: Clock,
        timers: Timers,
        later: Callable[[Callable[[], None]], None],
        write_timeout_ms: int,
        probe: TransactionProbe,
    ) -> None:
        """`write` and `write_all` are those of its shard; `writes_at_once` tells whether a write is committed before it
        returns; `when_sure` calls back whether this broker has led until now, at once if that is known; `level` is the
        cluster's transaction version; `later` does what thousands of ids may need in one moment."""
        self.transactions: dict[str, Transaction] = {}
        self.damaged: dict[str, str] = {}
        """Ids of which it is not known what was recorded last, and why."""
        self.waits_to_complete = 0
        """Transactions whose last record is to be written again."""
        self._write = write
        self._write_all = write_all
        self._queues = queues
        self._writes_at_once = writes_at_once
        self._when_sure = when_sure
        self._coordinator_epoch = coordinator_epoch
        self._take_producer_id = take_producer_id
        self._level = level
        self._clock = clock
        self._timers = timers
        self._later = later
        self._write_timeout_ms = write_timeout_ms
        self._probe = probe
        self._refusals: Counter[ErrorCode] = Counter()
        """Records that were refused since one was taken."""
        self._live = False
        self._large = records.LargePartitions()
        self._doubtful: dict[str, str] = {}
        """Ids at rest, or about to be, that may have had other producers and transactions since, and where that cannot
        be read."""
        self._busy: set[str] = set()
        """Ids of which a record is being written, or for which a producer id is being fetched."""
        self._taking: set[asyncio.Future[int]] = set()
        self._held: dict[str, deque[_Request]] = {}
        self._advancing: set[str] = set()
        self._endings: dict[str, Ending] = {}
        self._due: dict[str, tuple[_Request, Answer]] = {}
        """Answers to EndTxn that wait for the markers."""
        self._alarms: dict[str, Timer] = {}
        self._clients: dict[str, str] = {}
        """Who asked last for an open transaction."""

    # The log

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return records.encode(record, 1 if self._level() else 0, self._large)

    def least_size(self, record: Record) -> int:
        return records.least_size(record)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        return records.decode(key, value)

    def apply(self, record: Record, producer_id: int = -1) -> None:
        if isinstance(record, Transaction):
            self.transactions[record.id] = record
            if self.damaged:
                self.damaged.pop(record.id, None)
            if self._doubtful:
                self._doubtful.pop(record.id, None)
        else:
            self.transactions.pop(record.id, None)
            self.damaged.pop(record.id, None)
            self._doubtful.pop(record.id, None)
            if isinstance(record, Damaged):
                self.damaged[record.id] = record.why

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nothing here is written in a transaction."""

    def missed(self, where: str) -> Pieces[None]:
        """A transaction that was open may have been ended there, and its client told so. One whose end was decided ends
        so in any case. What is at rest may have been given to another producer, or have had another transaction."""
        for count, known in enumerate(list(self.transactions.values()), start=1):
            if known.state is ONGOING:
                self.apply(Damaged(known.id, f"its transaction was open ahead of {where}"))
            elif known.id not in self._doubtful:
                if known.state not in PREPARED:
                    self.transactions[known.id] = fenced(known)
                self._doubtful[known.id] = where
            if count % _LOOKED_AT_A_TURN == 0:
                yield

    def loaded(self) -> None:
        self._live = True
        for name, why in self.damaged.items():
            log.error(
                "transactional id %s cannot be used, for nobody knows what was recorded of it last: %s. Let its "
                "producer have another id, and end what it has left open: kctl txns hanging",
                name,
                why,
            )
        if self._doubtful:
            first, where = next(iter(self._doubtful.items()))
            log.error(
                "nobody knows what %d transactional ids, %s among them, were used for at %s: who has one is fenced, "
                "and the next producer of it gets a new producer id. End what they have left open: kctl txns hanging",
                *(len(self._doubtful), first, where),
            )
        for known in list(self.transactions.values()):
            if known.state in PREPARED:
                self._later(partial(self._bring_out_loaded, known))
            elif known.state is ONGOING:
                self._set_alarm(known)

    def unloaded(self) -> None:
        self._live = False
        for ending in self._endings.values():
            ending.drop()
        for alarm in self._alarms.values():
            alarm.cancel()
        for name in list(self._due):
            self._answer_end(name)
        held = [request for waiting in self._held.values() for request in waiting]
        known = self.transactions, self.damaged, self._doubtful, self._large
        for table in (*known, self._endings, self._alarms, self._held, self._clients):
            table.clear()
        self._busy.clear()
        for request in held:
            self._answer(request, _NOT_HERE)

    # What is asked

    def ask(self, name: str, asked: Asked, done: OnAnswer, client: str = "", *, waits_for_markers: bool = True) -> None:
        """HOT. `done` is called once, and at once where nothing has to be waited for. Who does not wait
        for markers waits for records all the same, but not for long."""
        request = _Request(asked, done, client, waits_for_markers)
        if name in self.damaged:
            done(Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif name in self._held or not self._consider(name, request):
            if waits_for_markers or name in self._busy:
                self._hold(name, request)
            else:
                self._send_away(name, request)

    def verify(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode | Codes], None],
        *,
        waits_for_markers: bool = True,
    ) -> None:
        """Whether each of the partitions is in the transaction; decided by what is committed, and changes nothing."""
        if name in self.damaged:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        found = transaction.verify(self.transactions.get(name), producer_id, epoch, partitions)
        if found is _CONCURRENT and waits_for_markers:
            verification = _Verification(producer_id, epoch, partitions)
            self.ask(name, verification, lambda answer: done(answer.error or verification.found))
        elif found is _CONCURRENT or not (isinstance(found, ErrorCode) or any(found.values())):
            done(found)
        else:
            self._when_sure(lambda is_sure: done(found if is_sure else ErrorCode.NOT_COORDINATOR))

    def has(self, name: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]) -> bool:
        """HOT. True if this producer's transaction is open and has the partitions."""
        known = self.transactions.get(name)
        return (
            known is not None
            and known.producer_id == producer_id
            and known.epoch == epoch
            and known.state is ONGOING
            and known.partitions.issuperset(partitions)
        )

    def adds_at_once(self, name: str, asked: AddPartitions, client: str = "") -> bool:
        """HOT. True if these partitions have been added; False if that is refused, or would have to be waited for, and
        nothing is done."""
        known = self.transactions.get(name)
        if known is None or known.state in PREPARED or name in self._busy or name in self._held:
            return False
        if not self._writes_at_once():
            return False
        answers: list[Answer] = []
        self.ask(name, asked, answers.append, client)
        return answers == [OK]

    def lacking(self, name: str) -> frozenset[TopicPartition]:
        """The partitions of an id's transaction; of an ended one, those that still lack their marker."""
        ending = self._endings.get(name)
        if ending is not None:
            return frozenset(ending.waiting)
        known = self.transactions.get(name)
        return transaction.NO_PARTITIONS if known is None else known.partitions

    def forget_expired(self, expiration_ms: int) -> Iterator[None]:
        """Write tombstones for ids that nobody has used for so long, a hundred at a time. Others get their turn between
        the steps, so that each id is judged by what it is by then."""
        expired: list[str] = []
        for looked_at, name in enumerate(list(self.transactions), 1):
            known = self.transactions.get(name)
            forgettable = known is not None and is_forgettable(known, self._clock.now_ms(), expiration_ms)
            if forgettable and name not in self._busy and self._live:
                self._busy.add(name)
                expired.append(name)
            if len(expired) >= _FORGOTTEN_A_TURN or looked_at % _LOOKED_AT_A_TURN == 0:
                self._forget(expired)
                expired = []
                yield
        self._forget(expired)

    # Carrying out

    def _consider(self, name: str, request: _Request) -> bool:
        """HOT. False if it has to be held; nothing is done then."""
        if name in self._busy:
            return False
        decision = self._decide(name, request)
        if type(decision) is Write:
            self._busy.add(name)
            request.stop_timer()
            request.written = False
            self._write((decision.record,), partial(self._recorded, name, request, decision))
            if not request.written:
                due_ms = self._clock.monotonic_ms() + (self._write_timeout_ms if request.waits_for_markers else HELD_MS)
                request.timer = self._timers.at(due_ms, partial(self._answer, request, _TIMED_OUT))
        elif type(decision) is Answer:
            if decision.error is _CONCURRENT:
                return False
            self._answer_if_led(request, decision)
        else:
            self._busy.add(name)
            request.stop_timer()
            taking = asyncio.ensure_future(self._take_producer_id())
            self._taking.add(taking)
            taking.add_done_callback(partial(self._got_id, name, request))
        return True

    def _decide(self, name: str, request: _Request) -> Decision:
        moment = Moment(self._clock.now_ms(), self._level(), request.new_id)
        return request.asked.decide(self.transactions.get(name), moment)

    def _got_id(self, name: str, request: _Request, got: asyncio.Future[int]) -> None:
        self._taking.discard(got)
        error = KafkaError(ErrorCode.NOT_COORDINATOR) if got.cancelled() or not self._live else got.exception()
        self._busy.discard(name)
        if error is None:
            request.new_id = got.result()
            self._held.setdefault(name, deque()).appendleft(request)
        elif isinstance(error, KafkaError):
            self._answer(request, Answer(_WITHOUT_CONTROLLER if error.code.retriable else error.code))
        else:
            log.error("internal error: transactional id %s got no producer id", name, exc_info=error)
            self._answer(request, Answer(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._advance(name)

    def _recorded(self, name: str, request: _Request, write: Write, error: KafkaError | None) -> None:
        """HOT. The record is committed, or it may never be."""
        self._busy.discard(name)
        request.stop_timer()
        request.written = True
        record, answer, cause = write
        if error is not None:
            self._note_refusal(record, error)
            answer = Answer(_REFUSED_WRITE.get(error.code, error.code))
        elif self._refusals:
            self._tell_of_refusals()
        if self.transactions.get(name) is not record:
            self._answer(request, answer)
        elif record.state in PREPARED:
            self._ended(request, record, answer, cause)
        else:
            if record.state is ONGOING:
                if request.client:
                    self._clients[name] = request.client
                self._set_alarm(record)
            self._answer(request, answer)
        self._advance(name)

    def _answer(self, request: _Request, answer: Answer) -> None:
        request.stop_timer()
        done, request.done = request.done, None
        if done is not None:
            done(answer)

    def _answer_if_led(self, request: _Request, answer: Answer) -> None:
        """What is only remembered, as that a transaction was committed, may be of one before the last: another broker
        may have led since. A record that is written tells of that itself."""
        request.stop_timer()
        self._when_sure(lambda is_sure: self._answer(request, answer if is_sure else _NOT_HERE))

    # Requests that wait

    def _hold(self, name: str, request: _Request, *, first: bool = False) -> None:
        if request.held_until_ms is None:
            self._probe.held += 1
            request.held_until_ms = self._clock.monotonic_ms() + HELD_MS
        if request.timer is None:
            request.timer = self._timers.at(request.held_until_ms, partial(self._give_up, name, request))
        held = self._held.setdefault(name, deque())
        if first:
            held.appendleft(request)
        else:
            held.append(request)

    def _advance(self, name: str) -> None:
        """Decide again what is held, in its order, as far as it goes."""
        held = self._held.get(name)
        if held is None or name in self._advancing:
            return
        self._advancing.add(name)
        try:
            while held:
                request = held.popleft()
                if not self._consider(name, request):
                    self._hold(name, request, first=True)
                    break
        finally:
            self._advancing.discard(name)
            if not held:
                self._held.pop(name, None)
        if held and name not in self._busy:
            for request in [one for one in held if not one.waits_for_markers]:
                self._give_up(name, request)

    def _give_up(self, name: str, request: _Request) -> None:
        """Not answered in time."""
        held = self._held[name]
        held.remove(request)
        if not held:
            del self._held[name]
        self._send_away(name, request)

    def _send_away(self, name: str, request: _Request) -> None:
        """Its sender has to ask again, unless the request is wrong anyway."""
        decision = self._decide(name, request)
        if type(decision) is Answer and decision.error and decision.error is not _CONCURRENT:
            self._answer_if_led(request, decision)
        else:
            self._answer(request, Answer(_CONCURRENT))

    # The end of a transaction: markers, and the record that it is complete

    def _ended(self, request: _Request, prepared: Transaction, answer: Answer, cause: Cause | None) -> None:
        """The end is decided. It is answered when all of it is done, or a little later if that takes longer."""
        name = prepared.id
        if cause is not None:
            self._probe.ended[cause] += 1
        if cause in _NOT_ASKED_FOR:
            self._tell_of_abort(prepared, request, cause)
        self._clients.pop(name, None)
        if answer.error is _CONCURRENT and request.done is not None:
            self._hold(name, request, first=True)
        elif answer.error:
            self._answer(request, answer)
        else:
            self._due[name] = request, answer
        self._bring_out(prepared)
        due = self._due.get(name)
        if due is not None and due[0] is request:
            due_ms = self._clock.monotonic_ms() + ANSWERED_AFTER_MS
            request.timer = self._timers.at(due_ms, partial(self._answer_end, name))

    def _answer_end(self, name: str) -> None:
        due = self._due.pop(name, None)
        if due is not None:
            self._answer(*due)

    def _bring_out(self, prepared: Transaction) -> None:
        """All markers, to each of its partitions: which have theirs already is not known after loading."""
        prepared_ms = self._clock.now_ms()
        end = completed(prepared, prepared_ms)
        done = partial(self._complete, fenced(end) if prepared.id in self._doubtful else end)
        ending = Ending(prepared, self._coordinator_epoch(), self._clock.monotonic_ms(), done)
        self._endings[prepared.id] = ending
        self._queues.send(ending)

    def _bring_out_loaded(self, prepared: Transaction) -> None:
        if self.transactions.get(prepared.id) is prepared:
            self._bring_out(prepared)

    def _complete(self, record: Transaction, ending: Ending) -> None:
        """All markers are written."""
        if self._endings.get(record.id) is ending:
            self._write((record,), partial(self._completed, ending, record))

    def _completed(self, ending: Ending, record: Transaction, error: KafkaError | None) -> None:
        """HOT."""
        name = record.id
        if self.transactions.get(name) is record:
            if self._refusals:
                self._tell_of_refusals()
            del self._endings[name]
            self._probe.completions += 1
            self._probe.completion_ms += self._clock.monotonic_ms() - ending.begun_ms
            self._answer_end(name)
            self._advance(name)
        elif self._live:
            if error is not None:
                self._note_refusal(record, error)
            self.waits_to_complete += 1
            self._timers.at(self._clock.monotonic_ms() + _PAUSE_MS, partial(self._complete_again, ending, record))

    def _note_refusal(self, record: Transaction, error: KafkaError) -> None:
        """While in-sync replicas are missing, thousands are refused again and again."""
        self._refusals[error.code] += 1
        if self._refusals[error.code] == 1:
            level = level_of_refusal(error)
            log.log(
                level,
                "could not record that transactional id %s is %s: %s"
                + ("; others are counted until records are taken again" if level > logging.INFO else ""),
                *(record.id, record.state.label, error),
            )

    def _tell_of_refusals(self) -> None:
        log.info("records of transactions are taken again; %d were refused meanwhile", self._refusals.total())
        self._refusals.clear()

    def _complete_again(self, ending: Ending, record: Transaction) -> None:
        self.waits_to_complete -= 1
        self._complete(record, ending)

    # Time

    def _set_alarm(self, known: Transaction) -> None:
        """Set the id's timer, unless it goes off earlier anyway: one that goes off too early is set anew.

        Never later than a whole time-out from now: while the time of day is behind, more than that seems to be left.
        """
        name = known.id
        left = min(left_ms(known, self._clock.now_ms()), known.timeout_ms)
        due_ms = self._clock.monotonic_ms() + max(left + 1, 0)
        alarm = self._alarms.get(name)
        if alarm is not None:
            if alarm.deadline_ms <= due_ms:
                return
            alarm.cancel()
        self._alarms[name] = self._timers.at(due_ms, partial(self._ring, name))

    def _ring(self, name: str) -> None:
        del self._alarms[name]
        known = self.transactions.get(name)
        if known is None or known.state is not ONGOING:
            return
        if left_ms(known, self._clock.now_ms()) >= 0:
            self._set_alarm(known)
        else:
            self._later(partial(self._time_out, name))

    def _time_out(self, name: str) -> None:
        if self._live:
            self.ask(name, TimeOut(), partial(self._timed_out, name))

    def _timed_out(self, name: str, answer: Answer) -> None:
        """It is open still where that could not be written, or the time of day was set back meanwhile."""
        known = self.transactions.get(name)
        if self._live and known is not None and known.state is ONGOING and name not in self._alarms:
            due_ms = self._clock.monotonic_ms() + (_REFUSED_PAUSE_MS if answer.error else _PAUSE_MS)
            self._alarms[name] = self._timers.at(due_ms, partial(self._ring, name))

    def _tell_of_abort(self, prepared: Transaction, request: _Request, cause: Cause | None) -> None:
        """A line of its own for each cause: one of the two may come so often that only some are written."""
        is_late = cause is Cause.TIMED_OUT
        log.info(
            "transactional id %s: aborting the transaction that producer %d, epoch %d, began %.1f s ago: "
            + ("that is longer than its time-out of %s ms; " if is_late else "%s takes over; ")
            + "the last request for it came from %s",
            prepared.id,
            prepared.producer_id,
            prepared.last_epoch,
            (self._clock.now_ms() - prepared.started_ms) / 1000,
            prepared.timeout_ms if is_late else request.client or "another producer",
            self._clients.get(prepared.id) or "a producer that is not known here",
        )

    def _forget(self, names: Sequence[str]) -> None:
        if names:
            self._write_all([Forgotten(name) for name in names], partial(self._forgotten, names))

    def _forgotten(self, names: Sequence[str], error: KafkaError | None) -> None:
        gone = [name for name in names if name not in self.transactions]
        if error is not None:
            text = "could not forget %d transactional ids that have expired: %s"
            log.log(level_of_refusal(error), text, len(names) - len(gone), error)
        if gone:
            log.info("forgot transactional ids that nobody has used for too long: %s", ", ".join(gone))
        for name in names:
            self._busy.discard(name)
            self._advance(name)


class _Verification:
    """Waits for its turn as other requests do, and keeps what it finds."""

    def __init__(self, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]) -> None:
        self.found: Codes = {}
        self._producer_id = producer_id
        self._epoch = epoch
        self._partitions = partitions

    def decide(self, known: Transaction | None, moment: Moment) -> Decision:
        found = transaction.verify(known, self._producer_id, self._epoch, self._partitions)
        if isinstance(found, ErrorCode):
            return Answer(found)
        self.found = found
        return OK
