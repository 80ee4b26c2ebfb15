"""Jobs of two worlds on an emulated service: Hadoop's manifest committer and this one, each taking over from the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

import committer
from committer import JobSpec
from committer.records.success import SuccessData
from tests.interop.python_side import FOR_JAVA_DRIVER, run_task
from tests.interop.store_job import NAMES, ManifestCommitterJob
from tests.interop.trees import contents

BOTH = contents(*NAMES) | contents("second.csv", "both.csv", salt="1")
COUNT = len(BOTH)


class Place(ABC):
    """An emulated service, and a job of Hadoop's that writes to `data/table` there.

    Attributes:
        renames: The operation that publishes a file.
        lost_in_java: What Java's driver meets when it publishes a file of `unicode`.
        recovered_by_java: How many files it looks up then.
    """

    renames: ClassVar[str]
    lost_in_java: ClassVar[Sequence[Mapping[str, Any]]]
    recovered_by_java: ClassVar[int]

    def __init__(self, job: ManifestCommitterJob, options: dict[str, object], conduct: Any, fault: Any) -> None:
        self.job = job
        self.options = options
        self.conduct = conduct
        self._fault = fault

    @abstractmethod
    def all_files(self) -> dict[str, bytes]:
        """Every file below `data/table`, by the emulator's own memory."""

    def standing(self) -> dict[str, bytes]:
        """Every file of the destination; none is below `_temporary`."""
        found = self.all_files()
        assert not [name for name in found if name.startswith("_temporary")]
        return found

    def published(self) -> dict[str, bytes]:
        """The same but `_SUCCESS`, which stands."""
        found = self.standing()
        del found["_SUCCESS"]
        return found

    def lose(self, **fault: Any) -> None:
        """Lets something happen to a rename of a file of `unicode`."""
        self.conduct.faults.append(self._fault(operation=self.renames, path_prefix="data/table/unicode", **fault))

    def file_renames(self) -> int:
        """How many requests asked for a file to be published."""
        asked = [one for one in self.conduct.log if one.operation == self.renames and "/tasks/" in one.source]
        return len(asked)


class JavaJobs:
    """What holds on each service. The fixture `place` is a `Place`."""

    async def test_java_tasks_and_a_python_job_commit(self, place: Place) -> None:
        job = place.job
        await job.setup()
        await job.run_task(0, contents(*NAMES))
        await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
        await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
        place.conduct.log.clear()
        # The identities that Java recorded, or that the driver looked up before it decided, prove each file: its
        # publication is one request, and a lost answer is no doubt.
        place.lose(kind="reset-after")
        spec = JobSpec.for_hadoop(job.uri, job.id)
        async with committer.attach_job(spec, storage_options=place.options) as attached:
            plan = await attached.plan()
            assert (plan.files, plan.conflicts) == (COUNT, [])
            report = await attached.commit(tasks=2)

        assert (report.success, report.files_committed, report.renames_recovered) == (True, COUNT, 1)
        assert place.file_renames() == COUNT
        success = await job.success()
        assert success["jobId"] == job.id
        assert success["iostatistics"]["counters"]["committer_files_committed"] == COUNT
        assert place.published() == BOTH

    async def test_python_tasks_and_a_java_job_commit(self, place: Place) -> None:
        job, options = place.job, place.options
        await job.setup()
        spec = JobSpec.for_hadoop(job.uri, job.id, config=FOR_JAVA_DRIVER)
        await run_task(spec, 0, contents(*NAMES), options)
        await run_task(spec, 1, contents("first.csv", "both.csv", salt="0"), options, attempt=0)
        await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), options, attempt=1)
        for fault in place.lost_in_java:
            place.lose(**fault)
        counters = await job.commit()

        assert counters["committer_files_committed"] == COUNT
        assert counters.get("commit_file_rename_recovered", 0) == place.recovered_by_java
        published = place.published()
        report = await committer.recover(job.uri, job.id, storage_options=options)
        assert (report.success, report.files_committed) == (True, COUNT)
        marker = await committer.load_record(f"{job.uri}/_SUCCESS", storage_options=options)
        assert isinstance(marker, SuccessData)
        assert (marker.jobId, len(marker.filenames)) == (job.id, COUNT)
        assert (await committer.validate(job.uri, storage_options=options)).ok
        assert published == BOTH

    @pytest.mark.parametrize("driver", ["java", "python"])
    async def test_tasks_of_both_in_a_job_that_python_set_up(self, place: Place, driver: str) -> None:
        job, config = place.job, FOR_JAVA_DRIVER if driver == "java" else None
        async with committer.open_job(
            job.uri, delivery="listing", config=config, storage_options=place.options
        ) as made:
            job.join(made.spec.unique_id)
            await run_task(made.spec, 0, contents("p=1/python.csv"), place.options)
            await job.run_task(1, contents("p=1/java.csv", "p=2/java.csv"))
            if driver == "python":
                assert (await made.commit(tasks=2)).files_committed == 3
            else:
                assert (await job.commit())["committer_files_committed"] == 3

        assert (await job.success())["jobId"] == (job.id if driver == "java" else made.spec.job_id)
        assert place.published() == contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv")
