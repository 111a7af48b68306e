"""One file per API: the fields of its request and response, and the versions that carry them."""
