"""Validating, ending and reporting a job."""
