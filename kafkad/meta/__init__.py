"""The metadata store: a tree of znodes, embedded or in ZooKeeper, behind the narrow MetaStore protocol."""
