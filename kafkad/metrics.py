"""Counters that cost an addition, and their Prometheus text, made when somebody asks.

Names are those that the JMX exporter's common configuration for Kafka gives to Kafka's own metrics, so that dashboards
made for Kafka work. Parts hold probes and count on them; the registry calls collectors, which read live objects.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kafkad import __version__

COUNTER, GAUGE, SUMMARY = "counter", "gauge", "summary"
QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
SAMPLES_PER_PIECE = 1000
_RATE_WINDOW_S = 30

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric: its samples have labels and a value each. `suffixed` samples carry a suffix such as _count.

    Labels that many families share may be given as the text that `label_text` makes of them.
    """

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Labels | str, float]]
    suffixed: Iterable[tuple[str, Labels, float]] = ()


PAUSE: Final = None
"""Yielded by a collector between pieces of long work, so that the event loop can serve others."""

Collector = Callable[[], Iterable[Family | None]]

_PER_SECOND = (
    "kafka_controller_controllerstats_",
    "kafka_network_requestmetrics_",
    "kafka_server_brokertopicmetrics_",
    "kafka_server_fetchsessioncache_",
    "kafka_server_replicamanager_",
    "kafka_server_sessionexpirelistener_",
)
"""Kafka's own names of these counters end in PerSec, which some rules for the JMX exporter keep and others turn into
_total."""
_ALSO = {
    "kafka_network_socketserver_networkprocessoravgidle_percent": (
        "kafka_network_socketserver_networkprocessoravgidlepercent"
    ),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate"
    ),
    "kafka_server_socketservermetrics_connection_count": "kafka_server_socket_server_metrics_connection_count",
}


def names_of(family: str) -> tuple[str, ...]:
    """All names under which a metric is served: Strimzi's dashboards ask for the first, Confluent's for the second."""
    if family.endswith("_total") and family.startswith(_PER_SECOND):
        return family, f"{family.removesuffix('_total')}persec"
    also = _ALSO.get(family)
    return (family, also) if also else (family,)


class Registry:
    """Collectors, asked in the order in which they were added. A name belongs to one collector."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def add(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def pieces(self) -> Iterator[str]:
        """The text in pieces of at most a thousand samples, so that an event loop can serve others in between."""
        for collector in self._collectors:
            for family in collector():
                yield from _rendered(family) if family is not None else ("",)

    def collect(self) -> str:
        return "".join(self.pieces())


def _rendered(family: Family) -> Iterator[str]:
    names = names_of(family.name)
    if len(names) > 1:
        family = family._replace(samples=list(family.samples), suffixed=list(family.suffixed))
    for name in names:
        yield from _rendered_as(name, family)


def _rendered_as(name: str, family: Family) -> Iterator[str]:
    lines = [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
    for labels, value in family.samples:
        text = labels if isinstance(labels, str) else label_text(labels)
        lines.append(f"{name}{text} {value}")
        if len(lines) >= SAMPLES_PER_PIECE:
            yield "\n".join([*lines, ""])
            lines.clear()
    lines += [f"{name}{suffix}{label_text(labels)} {value}" for suffix, labels, value in family.suffixed]
    yield "\n".join([*lines, ""])


def label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels]) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class TopicProbe:
    """Traffic of one topic. Plain integers: `probe.bytes_in += size`."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch",
        "failed_produce",
        "messages_in",
        "total_fetch",
        "total_produce",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetch = 0
        self.failed_produce = 0
        self.messages_in = 0
        self.total_fetch = 0
        self.total_produce = 0

    def add(self, other: TopicProbe) -> None:
        for name in TopicProbe.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_TOPIC_METRICS = (
    ("messages_in", "messagesin", "Records produced."),
    ("bytes_in", "bytesin", "Bytes produced."),
    ("bytes_out", "bytesout", "Bytes fetched by consumers."),
    ("bytes_rejected", "bytesrejected", "Bytes of batches that were too large."),
    ("failed_produce", "failedproducerequests", "Produce requests that failed."),
    ("failed_fetch", "failedfetchrequests", "Fetch requests that failed."),
    ("total_produce", "totalproducerequests", "Produce requests."),
    ("total_fetch", "totalfetchrequests", "Fetch requests."),
)


class TopicProbes:
    """A probe per topic. The sums over all topics never fall, also when a topic goes."""

    def __init__(self) -> None:
        self._live: dict[str, TopicProbe] = {}
        self._gone = TopicProbe()

    def __getitem__(self, topic: str) -> TopicProbe:
        probe = self._live.get(topic)
        if probe is None:
            probe = self._live[topic] = TopicProbe()
        return probe

    def forget(self, topic: str) -> None:
        probe = self._live.pop(topic, None)
        if probe is not None:
            self._gone.add(probe)

    def collect(self) -> Iterator[Family]:
        """As Kafka: the sum without a label, then each topic."""
        total = TopicProbe()
        for probe in (self._gone, *self._live.values()):
            total.add(probe)
        for attribute, metric, text in _TOPIC_METRICS:
            samples: list[tuple[Labels | str, float]] = [((), getattr(total, attribute))]
            samples += [((("topic", topic),), getattr(probe, attribute)) for topic, probe in self._live.items()]
            yield Family(f"kafka_server_brokertopicmetrics_{metric}_total", COUNTER, text, samples)


_EXACT = 16
"""Times below this many microseconds have a bucket each; above, eight buckets per power of two (6 % apart)."""
_BUCKETS = 272
"""The last one ends at 2^36 microseconds: 19 hours."""


TOTAL, QUEUED, LOCAL, REMOTE = "total", "requestqueue", "local", "remote"
"""Kafka's phases as far as one loop has them: a wait for its turn, the handler's own work, and what that waited for."""


class RequestProbe:
    """Calls of one API and their duration: `record` on every request, at the price of an addition."""

    __slots__ = ("_buckets", "_waited", "_windows", "api", "count", "errors", "queued_us", "remote_us", "total_us")

    def __init__(self, api: str) -> None:
        self.api = api
        self.count = 0
        self.total_us = 0
        self.queued_us = 0
        self.remote_us = 0
        self.errors: dict[str, int] = {}
        self._buckets: list[int] = []
        """Times of requests that were answered on the spot."""
        self._waited: dict[str, list[int]] = {}
        """Times of the other requests, by phase, once there is one."""
        self._windows = {phase: _Window() for phase in (TOTAL, QUEUED, LOCAL, REMOTE)}

    def record(self, us: int) -> None:
        """HOT. A request was answered on the spot."""
        self.count += 1
        self.total_us += us
        if us >= _EXACT:
            shift = us.bit_length() - 4
            us = (shift << 3) + (us >> shift)
        try:
            self._buckets[us] += 1
        except IndexError:
            self._record_rarely(us)

    def _record_rarely(self, bucket: int) -> None:
        """The first request of an API pays for its buckets; nothing takes longer than the last one."""
        if not self._buckets:
            self._buckets = [0] * _BUCKETS
        self._buckets[min(bucket, _BUCKETS - 1)] += 1

    def record_wait(self, local_us: int, remote_us: int) -> None:
        """HOT. A request was answered after it had to wait: for records, for a disk, for members of a group."""
        self.count += 1
        self.total_us += local_us + remote_us
        self.remote_us += remote_us
        waited = self._waited
        if TOTAL not in waited:
            waited |= {phase: [0] * _BUCKETS for phase in (TOTAL, LOCAL, REMOTE)}
        waited[TOTAL][_bucket(local_us + remote_us)] += 1
        waited[LOCAL][_bucket(local_us)] += 1
        waited[REMOTE][_bucket(remote_us)] += 1

    def record_queued(self, us: int) -> None:
        """A request that is recorded besides had to wait for its turn; most have not."""
        self.queued_us += us
        if QUEUED not in self._waited:
            self._waited[QUEUED] = [0] * _BUCKETS
        self._waited[QUEUED][_bucket(us)] += 1

    def error(self, code: str, count: int = 1) -> None:
        self.errors[code] = self.errors.get(code, 0) + count

    def quantiles_ms(self, now_s: float, phase: str = TOTAL) -> list[float]:
        """Over the last five to ten minutes of requests; over all of them as long as there was no other scrape."""
        counts = self._buckets or [0] * _BUCKETS
        if phase is REMOTE:
            counts = [sum(counts), *[0] * (_BUCKETS - 1)]
        elif phase is QUEUED:
            counts = [max(self.count - sum(self._waited.get(QUEUED, ())), 0), *[0] * (_BUCKETS - 1)]
        if phase in self._waited:
            counts = [a + b for a, b in zip(counts, self._waited[phase], strict=True)]
        return _quantiles(self._windows[phase].recent(counts, now_s))

    def sum_ms(self, phase: str) -> float:
        local_us = self.total_us - self.remote_us
        sums = {TOTAL: self.total_us, QUEUED: self.queued_us, LOCAL: local_us, REMOTE: self.remote_us}
        return sums[phase] / 1000


class _Window:
    """The counts of five to ten minutes ago."""

    __slots__ = ("_before", "_earlier", "_rotated_s")

    def __init__(self) -> None:
        self._before: list[int] = []
        self._earlier: list[int] = []
        self._rotated_s = 0.0

    def recent(self, counts: list[int], now_s: float) -> list[int]:
        if now_s - self._rotated_s >= 300:
            self._before, self._earlier = self._earlier, list(counts)
            self._rotated_s = now_s
        before = self._before or [0] * len(counts)
        return [total - old for total, old in zip(counts, before, strict=True)]


def _bucket(us: int) -> int:
    if us < _EXACT:
        return us
    shift = us.bit_length() - 4
    return min((shift << 3) + (us >> shift), _BUCKETS - 1)


def _quantiles(counts: list[int]) -> list[float]:
    total = sum(counts)
    if not total:
        return [0.0] * len(QUANTILES)
    found: list[float] = []
    seen = 0
    buckets = iter(enumerate(counts))
    at = 0
    for _, share in QUANTILES:
        while seen < share * total:
            at, count = next(buckets)
            seen += count
        found.append(_middle_us(at) / 1000)
    return found


def _middle_us(bucket: int) -> float:
    if bucket < _EXACT:
        return float(bucket)
    shift = (bucket >> 3) - 1
    low = (bucket - (shift << 3)) << shift
    return low + (1 << shift) / 2


_NAMES = {"Fetch": ("Fetch", "FetchConsumer")}
"""Kafka counts fetches of consumers under both; dashboards ask for the second."""


def request_families(probes: Iterable[RequestProbe], now_s: float) -> Iterator[Family]:
    """Only APIs that were called. `now_s` is monotonic."""
    used: list[tuple[RequestProbe, Labels]] = [
        (probe, (("request", name),)) for probe in probes if probe.count for name in _NAMES.get(probe.api, (probe.api,))
    ]
    prefix = "kafka_network_requestmetrics"
    yield Family(
        f"{prefix}_requests_total", COUNTER, "Requests answered.", [(labels, probe.count) for probe, labels in used]
    )
    yield Family(
        f"{prefix}_errors_total",
        COUNTER,
        "Error codes in answers, for each topic, partition, group or other thing that an answer is about.",
        [((*labels, ("error", code)), count) for probe, labels in used for code, count in sorted(probe.errors.items())],
    )
    for phase, text in (
        (TOTAL, "Milliseconds from reading a request to its answer."),
        (QUEUED, "Milliseconds that a request had waited before that, behind others that arrived with it."),
        (LOCAL, "Milliseconds of them until its handler was done, or had to wait."),
        (REMOTE, "Milliseconds of them from then on: for records, a disk, members of a group."),
    ):
        yield Family(
            f"{prefix}_{phase}timems",
            SUMMARY,
            text,
            [
                ((*labels, ("quantile", name)), value)
                for probe, labels in used
                for (name, _), value in zip(QUANTILES, probe.quantiles_ms(now_s, phase), strict=True)
            ],
            [
                sample
                for probe, labels in used
                for sample in (("_count", labels, probe.count), ("_sum", labels, probe.sum_ms(phase)))
            ],
        )


def gauges(prefix: str, values: Mapping[str, float], text: str) -> Iterator[Family]:
    """`gauges("kafka_server_replicamanager", {"leadercount": 3}, …)`: Kafka's JMX names in small letters."""
    for name, value in values.items():
        yield Family(f"{prefix}_{name}", GAUGE, f"{text}: {name}.", [((), value)])


def counters(prefix: str, values: Mapping[str, int], text: str) -> Iterator[Family]:
    for name, value in values.items():
        yield Family(f"{prefix}_{name}_total", COUNTER, f"{text}: {name}.", [((), value)])


class RecentRate:
    """The rate of a counter per second over the last minute or half of it; to be read at each scrape."""

    __slots__ = ("_clock", "_count", "_marks")

    def __init__(self, clock: Callable[[], float], count: Callable[[], float]) -> None:
        self._clock = clock
        self._count = count
        self._marks = [(clock(), count())]

    def __call__(self) -> float:
        now, counted = self._clock(), self._count()
        if now - self._marks[-1][0] >= _RATE_WINDOW_S:
            self._marks = [self._marks[-1], (now, counted)]
        since, before = self._marks[0]
        return (counted - before) / max(now - since, 1e-6)


class IdleShare:
    """The part of the last minute, or half of it, in which a thread had nothing to do; to be asked by that thread."""

    __slots__ = ("_busy",)

    def __init__(self, clock: Callable[[], float], cpu_time: Callable[[], float]) -> None:
        self._busy = RecentRate(clock, cpu_time)

    def __call__(self) -> float:
        return round(min(max(1 - self._busy(), 0), 1), 4)


def idle_families(share: float) -> Iterator[Family]:
    """One thread is all of Kafka's request handlers and network processors."""
    text = "Part of the time without work, of 1"
    yield from gauges("kafka_server_kafkarequesthandlerpool", {"requesthandleravgidle_percent": share}, text)
    yield from gauges("kafka_network_socketserver", {"networkprocessoravgidle_percent": share}, text)


def build_families() -> Iterator[Family]:
    """A gauge that is always 1, as Prometheus has versions: its labels can be joined to any other metric."""
    labels = (("version", __version__), ("python", sys.version.split()[0]))
    yield Family("kafkad_build_info", GAUGE, "Which kafkad this is.", [(labels, 1)])


def process_families() -> Iterator[Family]:
    """The metrics that Prometheus clients report of every process; those that /proc lacks are left out."""
    cpu = os.times()
    yield Family("process_cpu_seconds_total", COUNTER, "CPU time used.", [((), round(cpu.user + cpu.system, 2))])
    with suppress(OSError):
        with open("/proc/self/statm") as file:
            virtual, resident = file.read().split()[:2]
        page = os.sysconf("SC_PAGE_SIZE")
        yield Family("process_virtual_memory_bytes", GAUGE, "Virtual memory.", [((), int(virtual) * page)])
        yield Family("process_resident_memory_bytes", GAUGE, "Resident memory.", [((), int(resident) * page)])
        yield Family("process_open_fds", GAUGE, "Open files.", [((), len(os.listdir("/proc/self/fd")))])
        with open("/proc/self/limits") as file:
            limit = next(line for line in file if line.startswith("Max open files")).split()[3]
        if limit.isdecimal():
            yield Family("process_max_fds", GAUGE, "Files that may be open.", [((), int(limit))])
        yield Family("process_start_time_seconds", GAUGE, "When it started, since 1970.", [((), _started())])
        yield from gauges("kafka_server_kafkaserver", _disk_bytes(), "What reached the disks, in bytes since the start")


def _started() -> float:
    """Start time in ticks since boot is the 20th field after the command, which stands in brackets."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot, 2)


def _disk_bytes() -> dict[str, float]:
    """Kafka takes them from here too, and calls them so."""
    with open("/proc/self/io") as file:
        counts = dict(line.split(": ") for line in file)
    return {f"linux_disk_{way}_bytes": int(counts[f"{way}_bytes"]) for way in ("read", "write")}
