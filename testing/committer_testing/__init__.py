"""Emulators of cloud stores, and a simulator that searches for a fault that breaks a guarantee."""
