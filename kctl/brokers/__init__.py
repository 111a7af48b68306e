"""`kctl brokers`."""

from kctl.lazy import Noun

brokers = Noun(
    "brokers",
    {
        "list": ("kctl.brokers.list:list_brokers", "List brokers with what they lead and hold."),
    },
    help="Look at brokers, their directories and what they can do.",
)
