"""The HTTPS server."""
