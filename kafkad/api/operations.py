"""What a client may do, as the bits of the answers that tell (KIP-430). Without an authorizer that is everything."""

from __future__ import annotations

NOT_ASKED_FOR = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << operation for operation in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (1 << operation for operation in range(9, 13))

ON_CLUSTER = _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
ON_TOPIC = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
ON_GROUP = _READ | _DELETE | _DESCRIBE
