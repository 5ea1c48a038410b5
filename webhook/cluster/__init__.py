"""Where snapshots come from: files."""
