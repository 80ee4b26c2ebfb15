"""Servers that behave as a cloud store does, for tests without an account: `adls` is Azure Data Lake Storage Gen2."""
