"""Explicit-state model of the commit protocol in which no name is used twice (README.md)."""
