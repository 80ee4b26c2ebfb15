"""A search for a counter-example to the guarantees: whole clusters in virtual time, every fault drawn from a seed.

Run it as ``python -m committer.testing.simulate``.
"""
