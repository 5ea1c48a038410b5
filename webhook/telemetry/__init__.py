"""Metrics and the decision log."""
