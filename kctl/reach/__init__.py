"""Access to a cluster: its address and login, connections, and questions that many commands ask."""
