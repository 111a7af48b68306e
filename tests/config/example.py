"""Writes etc/kafkad.yaml: `python -m tests.config.example > etc/kafkad.yaml`. A test compares the file with this."""

from __future__ import annotations

import sys

from kafkad.config import ConfigType, Setting
from kafkad.config.config import dynamic_mode
from kafkad.config.setting import DOUBLE_MAX
from kafkad.config.tables import BROKER_SECTIONS
from kafkad.config.values import text_of

HEAD = """\
# kafkad's settings. Each is here at its default, behind a #; take the # away to change it. Names and meanings are
# Kafka's, names that start with kafkad. are kafkad's own. Nested YAML (log: {segment: {bytes: 1}}) means the same.
# Settings of Kafka for what kafkad does not have are refused when they are set: KRaft, tiered storage,
# Java plug-ins. (dynamic) marks what can be changed while kafkad runs: in this file followed by SIGHUP, or by Kafka's
# configs tool.
"""
LIVE = {"http.listener": "127.0.0.1:9404"}
"""The settings in this file that a service wants, although a kafkad without a file does not have them."""


def render() -> str:
    return HEAD + "".join(
        f"\n\n# ---- {title} ----\n{''.join(_entry(setting) for setting in settings)}"
        for title, section in BROKER_SECTIONS.items()
        if (settings := [setting for setting in section if not setting.refused and not setting.only_dynamic])
    )


def _entry(setting: Setting) -> str:
    dynamic = "" if dynamic_mode(setting.name) == "read-only" else " (dynamic)"
    no_effect = f"\n# No effect: {setting.unused}." if setting.unused else ""
    text = f"{setting.name}: {LIVE.get(setting.name, _value(setting))}".rstrip()
    return f"\n# {setting.help}{dynamic}{no_effect}\n{'' if setting.name in LIVE else '#'}{text}\n"


def _value(setting: Setting) -> str:
    if setting.type is ConfigType.LIST and setting.default is not None:
        return f"[{text_of(setting.type, setting.default)}]"
    if setting.default == DOUBLE_MAX:
        return "1.7976931348623157E+308"
    if setting.default == "":
        return '""'
    return text_of(setting.type, setting.default) or ""


if __name__ == "__main__":
    sys.stdout.write(render())
