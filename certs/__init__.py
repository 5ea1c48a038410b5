"""Certificates of the webhook: authority, issuing, files, and a TLS context that swaps."""
