"""`kctl topics`."""

from kctl.lazy import Noun

topics = Noun(
    "topics",
    {
        "list": ("kctl.topics.list:list_topics", "List topics with their health and size."),
    },
    help="List, create, change and delete topics.",
)
