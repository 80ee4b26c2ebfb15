"""The store of Azure blobs, against Azurite."""
