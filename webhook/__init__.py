"""Allocguard: admission guard and account book for DRA devices that cost node-allocatable resources."""
