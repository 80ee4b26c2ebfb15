"""Chunks of a decided plan: cut from the files of a job by its driver, and read by a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from committer.records.job_state import Decision, Fact
from committer.records.publish_chunk import ChunkFile, ChunkFiles, PublishChunk, digest_of_entries
from committer.stages.base import StageContext
from committer.stages.commit_state import CommitState
from committer.stages.planned_file import PlannedFile
from committer.stages.planned_files import PlannedFiles

_MOST_FILES: Final = 5_000
_MOST_BYTES: Final = 1 << 20
# Workers are not all as fast: with several chunks each, none waits long for the last.
_CHUNKS_A_WORKER: Final = 4
# What a file takes in a chunk beside its texts.
_FRAME: Final = 64


def files_of_a_chunk(files: int, workers: int) -> int:
    """How many files a chunk of a job with so many is to have, where so many workers publish them."""
    return max(1, min(_MOST_FILES, -(-files // (max(1, workers) * _CHUNKS_A_WORKER))))


def cut(files: list[PlannedFile], most: int) -> Iterator[list[PlannedFile]]:
    """Files in runs of at most so many, and about a megabyte; at least one."""
    run: list[PlannedFile] = []
    length = 0
    for file in files:
        takes = _length(file)
        if run and (len(run) == most or length + takes > _MOST_BYTES):
            yield run
            run, length = [], 0
        run.append(file)
        length += takes
    if run:
        yield run


def _length(file: PlannedFile) -> int:
    length = _FRAME + len(file.source) + len(file.destination) + len(file.identity or "") + len(file.stamp)
    if file.upload is not None:
        texts = (*file.upload.etags, *file.upload.checksums)
        length += len(file.upload.id) + sum(map(len, texts)) + 2 * len(texts)
    return length


def make_chunk(
    context: StageContext,
    state: CommitState,
    number: int,
    files: list[PlannedFile],
    *,
    rate: float | None,
    forward_only: bool,
) -> PublishChunk:
    """The message of a run of files, with what the decision says stood at their destinations."""
    entries = msgspec.msgpack.encode(
        ChunkFiles(
            [
                ChunkFile(
                    file.source, file.destination, file.size, file.identity, file.version, file.upload, file.stamp
                )
                for file in files
            ],
            [file.stood for file in files if file.stood is not None],
        )
    )
    return PublishChunk(
        number=number,
        spec=msgspec.structs.replace(context.spec, config=context.config),
        driver=state.decision.driver,
        files=len(files),
        size=sum([file.size for file in files]),
        entries=entries,
        digest=digest_of_entries(entries),
        forward_only=forward_only,
        sealed=state.decision.sealed,
        rate=rate,
    )


def state_of_chunk(context: StageContext, chunk: PublishChunk) -> CommitState:
    """What a worker publishes: the decision as far as the chunk tells of it.

    Raises:
        RecordError: The chunk was damaged on its way, or another release made it.
    """
    told = chunk.decoded()
    files = [
        PlannedFile(file.source, file.destination, file.size, file.identity, file.upload, file.stamp, file.version)
        for file in told.files
    ]
    decision = Decision(
        job_id=chunk.spec.job_id,
        decision="commit",
        driver=chunk.driver,
        created="",
        config=chunk.spec.config,
        files=chunk.files,
        size=chunk.size,
        sealed=chunk.sealed,
    )
    facts: list[Fact] = told.targets
    state = CommitState.of(context, decision, facts, files)
    state.forward_only = chunk.forward_only
    return state


def part_of(context: StageContext, state: CommitState, files: list[PlannedFile]) -> CommitState:
    """The same decision, of which these files are to be published."""
    return replace(state, files=PlannedFiles(context, [], files, decided=True), promote=None)
