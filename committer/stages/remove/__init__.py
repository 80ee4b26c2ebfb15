"""Removing what a job that is over leaves."""
