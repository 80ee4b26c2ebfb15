"""A NameNode and two DataNodes in one Java process, on free ports of 127.0.0.1."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.jvm import Jvm
from tests.interop.maven import dependency, hadoop_jars, hadoop_version

DATA_NODES = 2
_START_S = 120


def jars() -> list[Path]:
    """Hadoop's servers, for the client that PySpark has.

    Raises:
        NoJavaError: They are not there and cannot be fetched; the text says why.
    """
    version = hadoop_version()
    servers = dependency("org.apache.hadoop:hadoop-client-minicluster", version, without=["*:*"])
    return hadoop_jars(f"hadoop-client-minicluster-{version}", [servers])


class Cluster:
    """The servers.

    Args:
        jvm: Where they run.
        directory: What they keep.
        options: More of their configuration.

    Attributes:
        authority: The NameNode's host and port.
        hdfs: Hadoop's own client of it.
    """

    def __init__(self, jvm: Jvm, directory: Path, options: Mapping[str, str] | None = None) -> None:
        self._jvm = jvm
        self._java = jvm.view
        self._directory = directory
        self._configuration = self._configured(options or {})
        # Else a second one in this process has the first one's name.
        self._java.org.apache.hadoop.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)
        servers = self._java.org.apache.hadoop.hdfs.server
        name_nodes = servers.namenode.NameNode
        name_nodes.format(self._configuration)
        arguments = jvm.array(self._java.java.lang.String, 0)
        self.name_node: Any = name_nodes.createNameNode(arguments, self._configuration)
        port = self.name_node.getNameNodeAddress().getPort()
        self.authority: str = f"127.0.0.1:{port}"
        self._configuration.set("fs.defaultFS", f"hdfs://{self.authority}")
        self._configuration.set("dfs.namenode.rpc-address", self.authority)
        self._data_nodes = []
        for number in range(DATA_NODES):
            own = self._java.org.apache.hadoop.hdfs.HdfsConfiguration(self._configuration)
            own.set("dfs.datanode.data.dir", f"file://{directory}/data-{number}")
            self._data_nodes.append(servers.datanode.DataNode.createDataNode(arguments, own))
        self._wait_until_ready()
        self.hdfs: Any = self._java.org.apache.hadoop.fs.FileSystem.newInstance(self._configuration)

    def close(self) -> None:
        """Ends the servers, whose process lives on."""
        self.hdfs.close()
        for node in self._data_nodes:
            node.shutdown()
        self.name_node.stop()

    def safe_mode(self, action: str) -> None:
        """Has the NameNode `ENTER` or `LEAVE` safe mode, in which it changes nothing."""
        actions = self._java.org.apache.hadoop.fs.SafeModeAction
        self.hdfs.setSafeMode(getattr(actions, action))

    def path(self, name: str) -> Any:
        """A path as Hadoop's client takes it."""
        return self._java.org.apache.hadoop.fs.Path(self._java.java.net.URI("hdfs", self.authority, name, None, None))

    def text_of(self, array: Any) -> str:
        """What an array of Java's holds, whatever its type, in a few calls for all of it."""
        lang = self._java.java.lang
        types = self._jvm.array(lang.Class, 1)
        types[0] = lang.Class.forName("[Ljava.lang.Object;")
        arguments = self._jvm.array(lang.Object, 1)
        arguments[0] = array
        return str(lang.Class.forName("java.util.Arrays").getMethod("toString", types).invoke(None, arguments))

    def permission(self, octal: str) -> Any:
        """A file's mode as Hadoop's client takes it."""
        return self._java.org.apache.hadoop.fs.permission.FsPermission(octal)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        names = self.name_node.getNamesystem()
        while names.getNumLiveDataNodes() < DATA_NODES or self.name_node.isInSafeMode():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the DataNodes were not there within {_START_S} s")
            time.sleep(0.05)

    def _configured(self, options: Mapping[str, str]) -> Any:
        configuration = self._java.org.apache.hadoop.hdfs.HdfsConfiguration()
        free = "127.0.0.1:0"
        for key, value in {
            "fs.defaultFS": f"hdfs://{free}",
            "hadoop.tmp.dir": f"{self._directory}/tmp",
            "hadoop.security.authentication": "simple",
            "dfs.namenode.rpc-address": free,
            "dfs.namenode.http-address": free,
            "dfs.namenode.name.dir": f"file://{self._directory}/name",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.edits.noeditlogchannelflush": "true",
            "dfs.datanode.address": free,
            "dfs.datanode.http.address": free,
            "dfs.datanode.ipc.address": free,
            # With one DataNode alone a file is closed when its report is in, which takes half a second.
            "dfs.replication": str(DATA_NODES),
            # The smallest there is: a file of some megabytes has several.
            "dfs.blocksize": "1m",
            "dfs.namenode.file.close.num-committed-allowed": "1",
            **options,
        }.items():
            configuration.set(key, value)
        return configuration
