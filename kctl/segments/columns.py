"""The columns that `kctl dump-segment` prints of a record, of a decoded one, and of a batch."""

from __future__ import annotations

from kctl.texts.output import Column

_FILE = Column("file", "The segment's file.", machine=True)
_POSITION = Column("position", "Where its batch begins in the file.", "number", wide=True)
_OFFSET = Column("offset", "Its offset.", "number")
_TIME = Column("timestamp_ms", "Its time.", "time", "TIME")
_PRODUCER = Column("producer_id", "The producer of its batch; -1 is none.", "number", "PRODUCER", wide=True)
_EPOCH = Column("producer_epoch", "The producer's epoch.", "number", machine=True)
_CODEC = Column("codec", "How its batch is compressed.", wide=True)
_CRC_OK = Column("crc_ok", "Whether its batch has the checksum of its bytes.", machine=True)
_OF_BATCH = (
    _FILE,
    _POSITION,
    Column("batch_base_offset", "The first offset of its batch.", "number", machine=True),
    _PRODUCER,
    _EPOCH,
    Column("sequence", "Its sequence, by which a broker knows repeated batches.", "number", "SEQ", wide=True),
    Column("leader_epoch", "The epoch of the leader that took it.", "number", wide=True),
    Column("transactional", "Whether it is part of a transaction.", machine=True),
    Column("control", "Whether it is a marker that ends one.", machine=True),
    _CODEC,
    _CRC_OK,
)
RECORD_COLUMNS = (
    _OFFSET,
    _TIME,
    Column("key", "Its key."),
    Column("value", "Its value; of a marker, what it says."),
    Column("headers", "Its headers: key and value of each.", machine=True),
    Column("header_text", "Its headers.", header="HEADERS", shown=True),
    *_OF_BATCH,
)
DECODED_COLUMNS = (
    _OFFSET,
    _TIME,
    Column("type", "What kind of record it is."),
    Column("subject", "The group, the transactional id, or what of the cluster.", header="GROUP/ID"),
    Column("what", "What it says, in short.", shown=True),
    Column("key", "Its key, decoded.", machine=True),
    Column("value", "Its value, decoded; null deletes.", machine=True),
    Column("headers", "Its headers: key and value of each.", machine=True),
    *_OF_BATCH,
)
BATCH_COLUMNS = (
    Column("base_offset", "Its first offset.", "number", machine=True),
    Column("last_offset", "Its last offset.", "number", machine=True),
    Column("offsets", "Its first and last offset.", shown=True),
    Column("count", "How many records it has; -1: not known without unpacking it (formats v0, v1).", "number"),
    _FILE,
    Column("position", "Where it begins in the file.", "number"),
    Column("size_bytes", "Its size with its header.", "number", "SIZE"),
    Column("codec", "How it is compressed."),
    Column("crc", "Its checksum.", "number", machine=True),
    _CRC_OK,
    Column("crc_state", "Whether the checksum fits.", "state", "CRC", shown=True),
    Column("leader_epoch", "The epoch of the leader that took it.", "number", "EPOCH"),
    Column("producer_id", "Its producer; -1 is none.", "number", "PRODUCER"),
    _EPOCH,
    Column("base_sequence", "The sequence of its first record.", "number", "SEQ"),
    Column("flags", "transactional, control, append-time, delete-horizon.", "list"),
    Column("max_timestamp_ms", "The latest time in it.", "time", "TIME", wide=True),
    Column("magic", "Its format.", "number", wide=True),
)
ALL_COLUMNS = (*DECODED_COLUMNS, *(column for column in RECORD_COLUMNS if column.name == "header_text"))
