"""Store for Hadoop's distributed file system."""

from committer.stores.hdfs.store import HdfsStore

__all__ = ["HdfsStore"]
