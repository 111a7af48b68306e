"""Sockets: listeners, connections, frames in and out, back-pressure; and the HTTP listener."""
