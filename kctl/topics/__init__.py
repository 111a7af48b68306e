"""`kctl topics`."""

from kctl.command.noun import Noun

topics = Noun(
    "topics",
    {
        "list": ("kctl.topics.list:list_topics", "List topics with their health and size."),
        "describe": ("kctl.topics.describe:describe", "Show partitions, replicas, offsets and settings of topics."),
        "create": ("kctl.topics.create:create", "Create topics."),
        "delete": ("kctl.topics.delete:delete", "Delete topics with all their records."),
        "alter": ("kctl.topics.alter:alter", "Change partitions and settings of topics together."),
        "add-partitions": ("kctl.topics.add_partitions:add_partitions", "Add partitions to topics."),
        "truncate": ("kctl.topics.truncate:truncate", "Delete the oldest records, or all of them, but keep the topic."),
        "clone": ("kctl.topics.clone:clone", "Create a topic like another one."),
        "offsets": ("kctl.topics.offsets:offsets", "Show start and end offsets of partitions, or offsets at a time."),
    },
    help="List, create, change and delete topics.",
)
