"""Configuration: every setting by Kafka's name, where its value comes from, and the sections the parts are handed.

`load` makes a Config; `LogConfig.resolve` what a topic's logs obey; `kafkad.config.describe` what DescribeConfigs
answers and `kafkad.config.dynamic` what AlterConfigs may change are imported by those who need them.
"""

from __future__ import annotations

from kafkad.config.config import Config, Reload, Source
from kafkad.config.files import ConfigError
from kafkad.config.listeners import ZooKeeperAddress
from kafkad.config.load import load
from kafkad.config.setting import INT_MAX, LONG_MAX, ConfigType, Setting
from kafkad.config.tables import BROKER_SETTINGS, TOPIC_SETTINGS
from kafkad.config.topic import LogConfig, validate_topic_configs

__all__ = [
    "BROKER_SETTINGS",
    "INT_MAX",
    "LONG_MAX",
    "TOPIC_SETTINGS",
    "Config",
    "ConfigError",
    "ConfigType",
    "LogConfig",
    "Reload",
    "Setting",
    "Source",
    "ZooKeeperAddress",
    "load",
    "validate_topic_configs",
]
