"""Stores: the contract (`base`), one package per store, and the registry that finds a store by URI scheme."""
