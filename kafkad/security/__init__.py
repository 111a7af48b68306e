"""Security: TLS's keys and certificates, logins and tokens, principals and their permissions, quotas."""
