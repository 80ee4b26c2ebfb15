"""The S3 store, against servers that speak S3."""
