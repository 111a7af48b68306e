"""The transaction coordinator: which producer speaks for a transactional id, and what its transaction has come to."""
