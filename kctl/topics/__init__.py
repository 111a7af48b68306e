"""`kctl topics`."""

from kctl.lazy import Noun

topics = Noun(
    "topics",
    {
        "list": ("kctl.topics.list:list_topics", "List topics with their health and size."),
        "describe": ("kctl.topics.describe:describe", "Show partitions, replicas, offsets and settings of topics."),
        "create": ("kctl.topics.create:create", "Create topics."),
        "delete": ("kctl.topics.delete:delete", "Delete topics with all their records."),
        "add-partitions": ("kctl.topics.add_partitions:add_partitions", "Grow topics to more partitions."),
    },
    help="List, create, change and delete topics.",
)
