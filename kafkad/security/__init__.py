"""Security: principals and their permissions."""
