"""Choices of a commit and options of stores: their keys, parsers and origins."""
