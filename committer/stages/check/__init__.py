"""Checks of a destination before the decision."""
