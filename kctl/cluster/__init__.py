"""`kctl cluster`."""

from kctl.command.noun import Noun

cluster = Noun(
    "cluster",
    {
        "describe": ("kctl.cluster.describe:describe", "Show a summary of the cluster."),
        "controller": ("kctl.cluster.controller:controller", "Print which broker is the controller."),
        "features": ("kctl.cluster.features:features", "List features with their levels."),
        "quorum": ("kctl.cluster.quorum:quorum", "List the voters and observers of a KRaft quorum."),
        "zk": ("kctl.cluster.zk:zk", "Read the metadata store of a cluster: ZooKeeper, or kafkad's own."),
    },
    help="Show the cluster as a whole.",
)
