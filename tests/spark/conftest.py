from __future__ import annotations

from tests.kctl.conftest import approved, broker, kctl, no_settings_of_the_developer, on_broker

__all__ = ["approved", "broker", "kctl", "no_settings_of_the_developer", "on_broker"]
