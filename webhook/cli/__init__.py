"""The allocguard command."""
