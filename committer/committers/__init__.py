"""Committers, one module or folder each, and the core that drives a job commit."""
