"""Choices of a commit and options of stores: the keys, how their texts are read, and where they come from."""
