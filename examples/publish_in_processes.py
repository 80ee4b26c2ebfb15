"""Publishing a commit of very many files by several processes, where one driver cannot send as many requests.

    python examples/publish_in_processes.py [DIRECTORY]

The driver decides as always. Then it gives chunks of what it decided to the processes of an executor, which publish
them by the same rules, and writes `_SUCCESS` once every file is accounted for. A process that dies changes nothing:
the executor is made anew, and its chunks are sent again. Where the driver dies, `committer recover` finishes the job
from any machine, without these processes.

On a local disk this gains nothing: it is for stores behind HTTP, where a driver's own CPU is the limit. There all
workers together keep to `io_rate`, so give the rate that the account bears.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

from committer import sync

TASKS, FILES_A_TASK, WORKERS = 4, 100, 2


def make_executor() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn"))


def main(destination: str) -> None:
    with sync.open_job(destination) as job, sync.ExecutorPool(make_executor, WORKERS) as pool:
        for number in range(TASKS):
            with job.task_attempt(number) as task:
                for part in range(FILES_A_TASK):
                    with task.open(f"day={part % 10}/part-{number}-{part}.csv") as file:
                        file.write(f"{number},{part}\n".encode())
        report = job.commit(tasks=TASKS, publish_with=pool)
    print(f"{report.files_committed} files, published by {WORKERS} processes")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/table")
