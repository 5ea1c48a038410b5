"""Kubernetes wire types and arithmetic, without I/O."""
