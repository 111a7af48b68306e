"""Settings that only kafkad has."""

from __future__ import annotations

from kafkad import __version__
from kafkad.config.setting import (
    CLUSTER_WIDE,
    HIGH,
    INT_MAX,
    LONG_MAX,
    LOW,
    MEDIUM,
    Setting,
    at_least,
    between,
    boolean,
    integer,
    long,
    one_of,
    one_of_any_case,
    string,
)

LOG_LEVELS = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR")

SETTINGS: tuple[Setting, ...] = (
    string(
        "kafkad.version",
        __version__,
        LOW,
        "The release of kafkad, for whoever asks the broker.",
        refused="it is that of the kafkad that is installed: leave it out",
    ),
    integer(
        "kafkad.brokers",
        1,
        HIGH,
        "Brokers to start on this host, over one built-in store; each has the next id and ports. Not with ZooKeeper.",
        valid=between(1, 100),
    ),
    long(
        "kafkad.replica.lag.max.messages",
        -1,
        MEDIUM,
        "A follower further behind leaves the in-sync replicas, as replica.lag.max.messages of Kafka 0.8; -1: off.",
        valid=at_least(-1),
    ),
    boolean(
        "kafkad.acks.fsync",
        False,
        MEDIUM,
        "Answer acks=all only after an fsync, shared by all that wait for it.",
        dynamic=CLUSTER_WIDE,
    ),
    long(
        "kafkad.flush.bytes",
        LONG_MAX,
        MEDIUM,
        "fsync after this many bytes of records, as the oldest releases of Kafka could.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(1),
    ),
    boolean(
        "kafkad.read.flushed.only",
        False,
        MEDIUM,
        "Give consumers only what was flushed, as Kafka 0.7; what no setting flushes earlier follows in seconds.",
        dynamic=CLUSTER_WIDE,
    ),
    string(
        "kafkad.metadata.dir",
        None,
        HIGH,
        "Where the built-in store keeps its journal; unset: in the first data directory.",
    ),
    integer(
        "kafkad.max.open.files",
        -1,
        LOW,
        "Files of logs kept open; those used longest ago are closed. -1: half of what the process may have open.",
        valid=at_least(-1),
    ),
    integer(
        "kafkad.placement.start",
        -1,
        LOW,
        "The broker (counted from 0) that new topics' placement starts at; -1: a random one.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(-1),
    ),
    string(
        "kafkad.leader.election",
        "assignment-order",
        LOW,
        "Which in-sync replica takes over: assignment-order (as Kafka) or fewest-leaders (of the broker with fewest).",
        dynamic=CLUSTER_WIDE,
        valid=one_of("assignment-order", "fewest-leaders"),
    ),
    integer(
        "kafkad.transaction.version",
        2,
        LOW,
        "The transaction.version told to clients: 2, or 0 as Kafka 3.9; 0 as well beside brokers that are Kafka 3.9.",
        valid=between(0, 2),
    ),
    string("kafkad.log.format", "text", LOW, "How kafkad logs to stderr: text or json.", valid=one_of("text", "json")),
    string(
        "kafkad.audit.format",
        "text",
        LOW,
        "How refusals are written to the log kafkad.audit: text, in Kafka's words, or json, an object in each line.",
        valid=one_of("text", "json"),
    ),
    string(
        "kafkad.log.level",
        "info",
        LOW,
        "The least that is logged: debug, info, warning or error.",
        dynamic=CLUSTER_WIDE,
        valid=one_of_any_case(*LOG_LEVELS),
    ),
    boolean(
        "kafkad.strict.permissions",
        False,
        MEDIUM,
        "Refuse to start when group or others may read a file that holds secrets, instead of a warning.",
    ),
    string("http.listener", None, MEDIUM, "host:port that serves /metrics, /health and /ready over HTTP; unset: none."),
    integer(
        "kafkad.metrics.max.partitions",
        INT_MAX,
        LOW,
        "How many partitions, and partitions of groups, /metrics tells one by one; sums are over all of them.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(0),
    ),
)
