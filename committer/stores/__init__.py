"""Where files live: the contract (`base`), one module a store, and the registry that finds a store by URI scheme."""
