"""Pure functions from Kubernetes objects and a snapshot to findings and values."""
