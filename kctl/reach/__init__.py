"""How kctl reaches a cluster: where it is and as whom to log in, connections, and questions that many commands ask."""
