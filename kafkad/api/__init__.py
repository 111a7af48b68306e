"""One file per API, and routes.py, the one list of them."""
