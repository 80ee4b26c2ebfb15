"""What tests of stores, committers and their users need: a store conformance suite, injected faults, virtual time."""
