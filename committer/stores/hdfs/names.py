"""The names of HDFS's storage options: this library's, and those of Hadoop, pyarrow and fsspec."""

from __future__ import annotations

from typing import Final

from committer.storage_options import OptionTable, StorageOption

_IN_PATH: Final = "leave it out and write it into the path: hdfs://HOST:PORT/path"
_TICKET: Final = "leave it out: log in with kinit; the ticket cache is found as Hadoop finds it (KRB5CCNAME)"
_CHOICES: Final = "give config=CommitterConfig(io_concurrency=..., io_rate=...): those are choices of the commit"

HADOOP_FAMILIES: Final = ("dfs.", "hadoop.security.", "hadoop.rpc.", "fs.defaultfs")
"""What Hadoop's keys begin with that the client reads itself."""

TABLE: Final = OptionTable(
    store="HDFS",
    options=(
        StorageOption(
            "config_directory",
            "the directory of Hadoop's core-site.xml and hdfs-site.xml; without it `HADOOP_CONF_DIR`, else"
            " `HADOOP_HOME`/etc/hadoop",
            others=("config_dir", "hadoop_conf_dir"),
        ),
        StorageOption(
            "user",
            "who the NameNode is to see, where the cluster does not authenticate: it must be what `HADOOP_USER_NAME`"
            " says, or else the system's user",
            others=("hadoop_user_name",),
        ),
        StorageOption("http_session", "of no use here, and taken by every store", instance=True),
    ),
    advice={
        **dict.fromkeys(("host", "port"), _IN_PATH),
        **dict.fromkeys(("kerb_ticket", "kerberos_cache", "ticket_cache"), _TICKET),
        **dict.fromkeys(("replication", "default_block_size", "buffer_size"), "set it in hdfs-site.xml"),
        "extra_conf": "set these keys in hdfs-site.xml, or give them as options of their own: dfs.KEY",
        **dict.fromkeys(("max_retries", "timeout", "connect_timeout"), _CHOICES),
    },
    hadoop_families=HADOOP_FAMILIES,
)  # fmt: skip
