"""The offline commands: what lies in the directories of a broker, read without one."""
