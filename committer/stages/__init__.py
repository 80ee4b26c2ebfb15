"""Stages: one a file, each runs once, each takes and returns typed values."""
