"""`kctl cluster`."""

from kctl.lazy import Noun

cluster = Noun(
    "cluster",
    {
        "describe": ("kctl.cluster.describe:describe", "Show the cluster in a few lines."),
    },
    help="Look at the cluster as a whole.",
)
