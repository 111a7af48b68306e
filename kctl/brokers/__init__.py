"""`kctl brokers`."""

from kctl.command.noun import Noun

brokers = Noun(
    "brokers",
    {
        "list": ("kctl.brokers.list:list_brokers", "List brokers with what they lead and hold."),
        "describe": ("kctl.brokers.describe:describe", "Show a summary of brokers, with their settings."),
        "log-dirs": ("kctl.brokers.log_dirs:log_directories", "List log directories with their used and free space."),
        "api-versions": (
            "kctl.brokers.api_versions:api_versions",
            "List the APIs that brokers serve, with their versions.",
        ),
        "loggers": ("kctl.brokers.loggers:loggers", "List the loggers of a broker with their levels, or set some."),
    },
    help="Show brokers, their log directories and API versions.",
)
