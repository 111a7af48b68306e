"""Every setting there is, by name, in alphabetical order as Kafka lists them."""

from __future__ import annotations

from kafkad.config.setting import Setting
from kafkad.config.tables import cluster, connections, coordinators, foreign, logs, own, security, topics

BROKER_SECTIONS: dict[str, tuple[Setting, ...]] = {
    "What only kafkad has": own.SETTINGS,
    "Connections and requests": connections.SETTINGS,
    "Logs on disk": logs.SETTINGS,
    "This broker, replicas and the controller": cluster.SETTINGS,
    "Groups and transactions": coordinators.SETTINGS,
    "TLS, SASL and authorization": security.SETTINGS,
    "KRaft and tiered storage": foreign.SETTINGS,
}
BROKER_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in sorted(setting for settings in BROKER_SECTIONS.values() for setting in settings)
}
TOPIC_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in sorted(topics.SETTINGS)}
