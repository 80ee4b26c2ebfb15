"""Two NameNodes and two DataNodes, each a Java process that can be killed and started again, on ports of 127.0.0.1.

The NameNodes share their edits through a directory of this machine. Which one is active is for the test to say: no
ZooKeeper watches them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tests.free_ports import free_port
from tests.hdfs.cluster import jars
from tests.interop.jvm import Jvm, class_path

NAMESERVICE: Final = "lake"
NAME_NODES: Final = ("nn1", "nn2")
DATA_NODES: Final = ("dn1", "dn2")
_NAME_NODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_JAVA: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
)
_READY_S: Final = 90
# Kills a server when it is told to, or when the tests' process is gone.
_HELD: Final = '"$@" & server=$!; read -r _; kill -9 $server; wait $server'


class Servers:
    """The processes. Close them.

    Args:
        jvm: A Java with Hadoop's classes, which asks them.
        directory: What they keep, and their configuration, which a client reads, too.

    Attributes:
        configuration: The directory of core-site.xml and hdfs-site.xml.
        ports: Of each NameNode.
        hdfs: Hadoop's own client of the nameservice.
    """

    def __init__(self, jvm: Jvm, directory: Path) -> None:
        self._jvm = jvm
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.configuration = directory / "conf"
        self.configuration.mkdir()
        self.ports = {name: free_port() for name in NAME_NODES}
        self._write_configuration()
        self._jars = os.pathsep.join([str(self.configuration), class_path(), *map(str, jars())])
        self._configured = self._view_of_configuration()
        self.hdfs: Any = None

    def start(self) -> None:
        """Formats and starts all of them, with the first NameNode active."""
        java = self._jvm.view
        first = java.org.apache.hadoop.hdfs.HdfsConfiguration(self._configured)
        java.org.apache.hadoop.hdfs.server.namenode.NameNode.initializeGenericKeys(first, NAMESERVICE, "nn1")
        java.org.apache.hadoop.hdfs.server.namenode.NameNode.format(first)
        shutil.copytree(self._directory / "nn1", self._directory / "nn2")
        for name in (*NAME_NODES, *DATA_NODES):
            self.restart(name)
        self.make_active("nn1")
        self.hdfs = java.org.apache.hadoop.fs.FileSystem.newInstance(self._configured)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Waits until all DataNodes report, and the active NameNode takes changes."""
        self._wait(lambda: len(self.hdfs.getDataNodeStats()) == len(DATA_NODES), "DataNodes that report")
        self._wait(lambda: not self._in_safe_mode(), "the end of safe mode")

    def wait_until_on_both(self, file: str) -> None:
        """Waits until the active NameNode knows of a replica of a file on either DataNode."""
        path = self.path(file)
        status = self.hdfs.getFileStatus(path)
        self._wait(
            lambda: all(
                len(block.getHosts()) == len(DATA_NODES)
                for block in self.hdfs.getFileBlockLocations(status, 0, status.getLen())
            ),
            f"{file} on both DataNodes",
        )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    def restart(self, name: str) -> None:
        """Starts one, on its old ports and directories; first killed, if it still runs."""
        if self.runs(name):
            self.kill(name)
        with (self._directory / f"{name}.log").open("ab") as log:
            command = ["sh", "-c", _HELD, "sh", *self._command(name)]
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def runs(self, name: str) -> bool:
        """Whether it was started, and not killed since."""
        return name in self._processes

    def make_active(self, name: str) -> None:
        """Waits until a NameNode serves, and makes it the active one; no other is active, the test sees to that."""
        self._wait(lambda: self._administer("-transitionToActive", "--forceactive", name), f"{name} that is active")

    def make_standby(self, name: str) -> None:
        """Makes a NameNode one that refuses all calls."""
        self._wait(lambda: self._administer("-transitionToStandby", name), f"{name} that is standby")

    def path(self, name: str) -> Any:
        """A path as Hadoop's client takes it."""
        java = self._jvm.view
        return java.org.apache.hadoop.fs.Path(java.java.net.URI("hdfs", NAMESERVICE, name, None, None))

    def close(self) -> None:
        """Ends all of them."""
        for name in list(self._processes):
            self.kill(name)

    def _in_safe_mode(self) -> bool:
        actions = self._jvm.view.org.apache.hadoop.fs.SafeModeAction
        return bool(self.hdfs.setSafeMode(actions.GET))

    def _administer(self, *words: str) -> bool:
        java = self._jvm.view
        admin = java.org.apache.hadoop.hdfs.tools.DFSHAAdmin()
        admin.setConf(java.org.apache.hadoop.hdfs.HdfsConfiguration(self._configured))
        arguments = self._jvm.array(java.java.lang.String, len(words))
        for number, word in enumerate(words):
            arguments[number] = word
        return bool(admin.run(arguments) == 0)

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                if ready():
                    return
            except Exception:
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} within {_READY_S} s")
            time.sleep(0.1)

    def _command(self, name: str) -> Sequence[str]:
        if name in NAME_NODES:
            main, own = _NAME_NODE, f"dfs.ha.namenode.id={name}"
        else:
            main, own = _DATA_NODE, f"dfs.datanode.data.dir=file://{self._directory}/{name}"
        return [self._jvm.java, *_JAVA, "-cp", self._jars, main, "-D", own]

    def _view_of_configuration(self) -> Any:
        java = self._jvm.view
        configuration = java.org.apache.hadoop.hdfs.HdfsConfiguration()
        for name in ("core-site.xml", "hdfs-site.xml"):
            configuration.addResource(java.org.apache.hadoop.fs.Path(f"file://{self.configuration}/{name}"))
        return configuration

    def _write_configuration(self) -> None:
        free = "127.0.0.1:0"
        own = {
            f"dfs.namenode.{kind}.{NAMESERVICE}.{name}": address
            for name in NAME_NODES
            for kind, address in (("rpc-address", f"127.0.0.1:{self.ports[name]}"), ("http-address", free))
        }
        own |= {
            f"dfs.namenode.name.dir.{NAMESERVICE}.{name}": f"file://{self._directory}/{name}" for name in NAME_NODES
        }
        self._write(
            "core-site.xml", {"fs.defaultFS": f"hdfs://{NAMESERVICE}", "hadoop.tmp.dir": f"{self._directory}/tmp"}
        )
        self._write(
            "hdfs-site.xml",
            {
                "dfs.nameservices": NAMESERVICE,
                f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(NAME_NODES),
                f"dfs.client.failover.proxy.provider.{NAMESERVICE}": (
                    "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
                ),
                "dfs.namenode.shared.edits.dir": f"file://{self._directory}/shared",
                "dfs.ha.fencing.methods": "shell(/bin/true)",
                "dfs.ha.standby.checkpoints": "false",
                "dfs.namenode.safemode.extension": "0",
                "dfs.namenode.datanode.registration.ip-hostname-check": "false",
                "dfs.datanode.address": free,
                "dfs.datanode.http.address": free,
                "dfs.datanode.ipc.address": free,
                # A DataNode that is gone counts as dead after twelve seconds, and gets no new blocks.
                "dfs.heartbeat.interval": "1",
                "dfs.namenode.heartbeat.recheck-interval": "1000",
                "dfs.replication": "2",
                "dfs.blocksize": "1m",
                "dfs.namenode.file.close.num-committed-allowed": "1",
                **own,
            },
        )

    def _write(self, name: str, properties: dict[str, str]) -> None:
        lines = [
            f"<property><name>{key}</name><value>{escape(value)}</value></property>"
            for key, value in properties.items()
        ]
        (self.configuration / name).write_text(f"<configuration>{''.join(lines)}</configuration>")
