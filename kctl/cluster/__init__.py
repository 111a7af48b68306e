"""`kctl cluster`."""

from kctl.command.noun import Noun

cluster = Noun(
    "cluster",
    {
        "describe": ("kctl.cluster.describe:describe", "Show the cluster in a few lines."),
        "controller": ("kctl.cluster.controller:controller", "Print which broker is the controller."),
        "features": ("kctl.cluster.features:features", "List features with their levels."),
        "quorum": ("kctl.cluster.quorum:quorum", "List voters and observers of a KRaft quorum."),
        "zk": ("kctl.cluster.zk:zk", "Look into the metadata store of a cluster: ZooKeeper, or kafkad's own."),
    },
    help="Look at the cluster as a whole.",
)
