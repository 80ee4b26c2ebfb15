"""Store for Amazon S3 and services that speak its protocol."""

from committer.stores.s3.store import S3Store

__all__ = ["S3Store"]
