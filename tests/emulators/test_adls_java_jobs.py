"""One job of two worlds on an emulated account: Hadoop's committer for Azure and this one, each taking over from the other."""

from __future__ import annotations

from typing import Any

import pytest

import committer
from committer import JobSpec
from committer.errors import RecordError
from committer_testing.emulators.adls import AdlsEmulator, Fault
from tests.interop.jvm import Jvm
from tests.interop.trees import contents

from .hadoop_azure import Abfs, ManifestJob
from .java_jobs import JavaJobs, Place

pytestmark = pytest.mark.java


class Account(Place):
    """An emulated account."""

    renames = "rename"
    # The etags that Python recorded are what Java recovers by. (Java's HTTP client sends a request again by itself when
    # a connection it kept is dropped; the second drop is what Hadoop sees.)
    lost_in_java = ({"kind": "reset-after", "count": 1}, {"kind": "reset", "skip": 1, "count": 1})
    recovered_by_java = 1

    def __init__(self, job: ManifestJob, emulator: AdlsEmulator) -> None:
        options: dict[str, object] = {"endpoint": emulator.dfs_url, "account_key": emulator.settings.key}
        super().__init__(job, options, emulator.conduct, Fault)
        self._emulator = emulator

    def all_files(self) -> dict[str, bytes]:
        """Every file, and none that is a directory of `_temporary`."""
        found: dict[str, bytes] = {}

        def enter(node: Any, base: str) -> None:
            for name, child in (node.children or {}).items():
                if child.is_directory:
                    assert name != "_temporary"
                    enter(child, f"{base}{name}/")
                else:
                    found[base + name] = child.data

        enter(self._emulator.namespace.get("data", "table"), "")
        return found


@pytest.fixture
def place(jvm: Jvm, abfs: Abfs, emulator: AdlsEmulator) -> Account:
    return Account(ManifestJob(jvm, abfs), emulator)


class TestAdls(JavaJobs):
    """On an account."""

    async def test_a_job_goes_by_the_scheme_that_its_tasks_used(self, place: Account) -> None:
        """As with Hadoop, to which `abfs:` and `abfss:` are two file systems; nothing is done, and the error says what to do."""
        job, options = place.job, place.options
        await job.setup()
        await job.run_task(0, contents("a.csv"))
        uri = job.uri.replace("abfs:", "abfss:", 1)
        async with committer.attach_job(JobSpec.for_hadoop(uri, job.id), storage_options=options) as attached:
            with pytest.raises(RecordError, match="does not lie below") as caught:
                await attached.commit(tasks=1)
        assert caught.value.outcome == "unchanged"
        assert "with abfs: in place of abfss:" in caught.value.next_step
        async with committer.attach_job(JobSpec.for_hadoop(job.uri, job.id), storage_options=options) as attached:
            await attached.commit(tasks=1)
        assert place.standing().keys() == {"a.csv", "_SUCCESS"}
