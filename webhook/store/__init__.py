"""What is read from and written to disk besides the cluster."""
