"""Settings of parts of Kafka that kafkad does not have: KRaft and tiered storage."""

from __future__ import annotations

from kafkad.config.setting import (
    CLUSTER_WIDE,
    HIGH,
    KRAFT,
    LONG_MAX,
    LOW,
    MEDIUM,
    TIERED,
    Setting,
    at_least,
    boolean,
    integer,
    long,
    names,
    some_of,
    string,
)

SETTINGS: tuple[Setting, ...] = (
    names(
        "process.roles", (), HIGH, "The roles of a KRaft node.", valid=some_of("broker", "controller"), refused=KRAFT
    ),
    string("controller.listener.names", None, HIGH, "Listeners of the KRaft controllers.", refused=KRAFT),
    integer("controller.quorum.append.linger.ms", 25, MEDIUM, "How long a KRaft leader gathers writes.", refused=KRAFT),
    names("controller.quorum.bootstrap.servers", (), HIGH, "KRaft controllers to start from.", refused=KRAFT),
    integer(
        "controller.quorum.election.backoff.max.ms",
        1000,
        HIGH,
        "The longest rest between two elections.",
        refused=KRAFT,
    ),
    integer(
        "controller.quorum.election.timeout.ms", 1000, HIGH, "When a KRaft node starts an election.", refused=KRAFT
    ),
    integer(
        "controller.quorum.fetch.timeout.ms", 2000, HIGH, "When a KRaft follower gives its leader up.", refused=KRAFT
    ),
    integer(
        "controller.quorum.request.timeout.ms",
        2000,
        MEDIUM,
        "How long a request to a KRaft controller may take.",
        refused=KRAFT,
    ),
    integer("controller.quorum.retry.backoff.ms", 20, LOW, "How long it rests before the next one.", refused=KRAFT),
    names("controller.quorum.voters", (), HIGH, "The KRaft voters.", refused=KRAFT),
    integer("broker.heartbeat.interval.ms", 2000, MEDIUM, "How often a KRaft broker reports.", refused=KRAFT),
    integer("broker.session.timeout.ms", 9000, MEDIUM, "When a silent KRaft broker is fenced.", refused=KRAFT),
    integer(
        "initial.broker.registration.timeout.ms",
        60_000,
        MEDIUM,
        "How long the first registration with KRaft may take.",
        refused=KRAFT,
    ),
    string("early.start.listeners", None, HIGH, "Listeners that start before the authorizer.", refused=KRAFT),
    string("metadata.log.dir", None, HIGH, "Where KRaft's metadata log is.", refused=KRAFT),
    long(
        "metadata.log.max.record.bytes.between.snapshots",
        20_971_520,
        HIGH,
        "A KRaft snapshot is made after this much.",
        valid=at_least(1),
        refused=KRAFT,
    ),
    long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        HIGH,
        "A KRaft snapshot is made after this long.",
        valid=at_least(0),
        refused=KRAFT,
    ),
    integer(
        "metadata.log.segment.bytes",
        1_073_741_824,
        HIGH,
        "Segment size of KRaft's metadata log.",
        valid=at_least(12),
        refused=KRAFT,
    ),
    long("metadata.log.segment.ms", 604_800_000, HIGH, "Segment age of KRaft's metadata log.", refused=KRAFT),
    integer(
        "metadata.max.idle.interval.ms",
        500,
        LOW,
        "How often KRaft writes when nothing happens.",
        valid=at_least(0),
        refused=KRAFT,
    ),
    long("metadata.max.retention.bytes", 104_857_600, HIGH, "How much of KRaft's metadata log is kept.", refused=KRAFT),
    long("metadata.max.retention.ms", 604_800_000, HIGH, "How long KRaft's metadata log is kept.", refused=KRAFT),
    integer(
        "remote.fetch.max.wait.ms",
        500,
        MEDIUM,
        "How long a fetch waits for remote storage.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(1),
        refused=TIERED,
    ),
    long(
        "remote.log.index.file.cache.total.size.bytes",
        1_073_741_824,
        LOW,
        "Cache for indexes of remote segments.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.copier.thread.pool.size", -1, MEDIUM, "Threads that copy segments out.", refused=TIERED
    ),
    long(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        MEDIUM,
        "The most that is copied out per second.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.copy.quota.window.num",
        11,
        MEDIUM,
        "Windows this is measured over.",
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        MEDIUM,
        "How long one of these windows is.",
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.expiration.thread.pool.size",
        -1,
        MEDIUM,
        "Threads that delete remote segments.",
        refused=TIERED,
    ),
    long(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        MEDIUM,
        "The most that is read from remote storage per second.",
        dynamic=CLUSTER_WIDE,
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.fetch.quota.window.num",
        11,
        MEDIUM,
        "Windows this is measured over.",
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        MEDIUM,
        "How long one of these windows is.",
        valid=at_least(1),
        refused=TIERED,
    ),
    long(
        "remote.log.manager.task.interval.ms",
        30_000,
        LOW,
        "How often segments to copy are looked for.",
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.manager.thread.pool.size",
        10,
        MEDIUM,
        "Threads for remote storage.",
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        LOW,
        "The largest extra data about a remote segment.",
        valid=at_least(0),
        refused=TIERED,
    ),
    string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        MEDIUM,
        "The Java class that remembers remote segments.",
        refused=TIERED,
    ),
    string("remote.log.metadata.manager.class.path", None, MEDIUM, "Where that class is.", refused=TIERED),
    string(
        "remote.log.metadata.manager.impl.prefix", "rlmm.config.", MEDIUM, "The prefix of its settings.", refused=TIERED
    ),
    string("remote.log.metadata.manager.listener.name", None, MEDIUM, "The listener it connects to.", refused=TIERED),
    integer(
        "remote.log.reader.max.pending.tasks",
        100,
        MEDIUM,
        "Reads that may wait for remote storage.",
        valid=at_least(1),
        refused=TIERED,
    ),
    integer(
        "remote.log.reader.threads", 10, MEDIUM, "Threads that read remote storage.", valid=at_least(1), refused=TIERED
    ),
    string(
        "remote.log.storage.manager.class.name",
        None,
        MEDIUM,
        "The Java class that stores remote segments.",
        refused=TIERED,
    ),
    string("remote.log.storage.manager.class.path", None, MEDIUM, "Where that class is.", refused=TIERED),
    string(
        "remote.log.storage.manager.impl.prefix", "rsm.config.", MEDIUM, "The prefix of its settings.", refused=TIERED
    ),
    boolean(
        "remote.log.storage.system.enable", False, MEDIUM, "Whether old segments go to remote storage.", refused=TIERED
    ),
)
