"""Committers: each an ordered list of stages behind one interface."""
