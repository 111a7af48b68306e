"""The protocol, without I/O: primitives, the declarative codec, frames, records, and one file per API in messages/."""
