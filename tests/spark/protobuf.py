"""A Protobuf schema with something of everything, and its messages as Google's own library for Python has them."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kafkad_etl.registry.protobuf import compiled

ORDER = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message Order {
  int64 id = 1;
  Customer customer = 2;
  repeated Line lines = 3;
  map<string, int32> stock = 4;
  State state = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.StringValue note = 7;
  uint64 big = 8;
  uint32 small = 9;
  bytes raw = 10;
  optional double discount = 11;
  oneof paid { string card = 12; bool cash = 13; }
  float weight = 14;

  message Line { string sku = 1; sint32 count = 2; }
  enum State { NEW = 0; SENT = 1; }
}

message Customer { string name = 1; Address address = 2; }
message Address { string city = 1; int32 zip = 2; }
"""
NEXT = ORDER.replace("  float weight = 14;", "  float weight = 14;\n  string channel = 15;")


def message_class(text: str, name: str, references: dict[str, str] | None = None) -> Any:
    """The message's class, of a schema that is compiled."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(b64decode(compiled(text, name, references).files)).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def framed(number: int, indexes: bytes, message: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + message
