"""How kafkad ends."""

FAILED, BAD_CONFIGURATION = 1, 2
MEANINGS = {0: "stopped", FAILED: "failed", BAD_CONFIGURATION: "the configuration cannot be used"}
