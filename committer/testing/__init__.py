"""Tools for tests of stores, committers and their users: a store conformance suite, injected faults, virtual time."""
