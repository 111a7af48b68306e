"""The cluster as this broker knows it: metadata, overridden settings, finalized features, ACLs, quotas, credentials,
delegation tokens, producer ids."""
