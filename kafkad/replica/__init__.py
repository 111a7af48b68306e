"""The replicas on this broker: roles, in-sync replicas, high watermarks, and the requests that wait for them."""
