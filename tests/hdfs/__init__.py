"""The store of HDFS, on a real NameNode."""
