"""Hadoop's documents, row by row: each option key and committer that they name has its answer, and the page its tests."""

from __future__ import annotations

import ast
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

import committer
from committer import CommitterConfig
from committer.committers.registry import BUILT_IN
from committer.errors import ConfigurationError, UnsupportedError
from committer.options.table import BY_KEY, FACTORY_SCHEME, job_identity
from tests.options.test_config import HONOURED

ROOT = Path(__file__).parents[1]

# --- Option keys --------------------------------------------------------------------------------------------------

Answer: TypeAlias = Literal["honoured", "warned of", "refused", "as it is anyway", "tells which job"]

M = "mapreduce.manifest.committer."
F = "mapreduce.fileoutputcommitter."
OC = "mapreduce.outputcommitter."
S = "fs.s3a.committer."
MANIFEST_FACTORY = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"
AZURE_FACTORY = "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory"
S3A_FACTORY = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
JINDO_FACTORY = "com.aliyun.emr.fs.oss.commit.JindoOssCommitterFactory"

# Every key of a committer that the documents name, with a text that asks for something else than the default does; but for
# those that tests/options/test_config.py has feed their fields.
KEYS: list[tuple[str, str, Answer]] = [
    # The manifest committer's guide.
    (M + "store.operations.classname", "org.example.Operations", "warned of"),
    (OC + "factory.scheme.abfs", AZURE_FACTORY, "as it is anyway"),
    (OC + "factory.scheme.gs", MANIFEST_FACTORY, "as it is anyway"),
    (OC + "factory.scheme.gcs", MANIFEST_FACTORY, "as it is anyway"),
    (OC + "factory.scheme.hdfs", MANIFEST_FACTORY, "as it is anyway"),
    (OC + "factory.scheme.file", MANIFEST_FACTORY, "as it is anyway"),
    (OC + "factory.scheme.s3a", S3A_FACTORY, "as it is anyway"),
    (OC + "factory.scheme.oss", JINDO_FACTORY, "warned of"),
    (OC + "factory.class", "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory", "warned of"),
    (OC + "named.classname", "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter", "warned of"),
    (OC + "class", "com.aliyun.emr.fs.oss.commit.JindoOssCommitter", "warned of"),
    ("mapreduce.job.application.attempt.id", "2", "tells which job"),
    ("spark.sql.sources.writeJobUUID", "a-b", "tells which job"),
    # FileOutputCommitter.
    (F + "algorithm.version", "2", "warned of"),
    (F + "algorithm.version", "10", "refused"),
    (F + "optimistic.file.commit.enabled", "true", "warned of"),
    # S3A's committers.
    (S + "name", "file", "as it is anyway"),
    (S + "name", "magic", "as it is anyway"),
    (S + "name", "directory", "honoured"),
    (S + "name", "partitioned", "honoured"),
    (S + "name", "magicv2", "as it is anyway"),
    (S + "name", "staging", "refused"),
    (S + "abort.pending.uploads", "true", "warned of"),
    (S + "staging.abort.pending.uploads", "true", "warned of"),
    (S + "require.uuid", "true", "tells which job"),
    (S + "generate.uuid", "true", "as it is anyway"),
    (S + "uuid", "a-b", "tells which job"),
    (S + "uuid.source", "JobID", "as it is anyway"),
    (S + "staging.uuid", "a-b", "warned of"),
    (S + "magic.enabled", "false", "warned of"),
    (S + "magic.track.commits.in.memory.enabled", "true", "as it is anyway"),
    (S + "magic.cleanup.enabled", "false", "warned of"),
    (S + "magic.overwrite.and.commit", "true", "as it is anyway"),
    (S + "magic.delete.directory.threads", "20", "as it is anyway"),
    (S + "staging.tmp.path", "/tmp/staging", "warned of"),
    (S + "staging.conflict-mode", "overwrite", "refused"),
    (S + "experimental.collect.iostatistics", "true", "as it is anyway"),
    ("fs.s3a.multipart.uploads.enabled", "false", "warned of"),
    ("fs.s3a.create.performance", "true", "as it is anyway"),
    # JindoOSS.
    ("fs.oss.committer.magic.enabled", "true", "warned of"),
    ("fs.oss.committer.threads", "8", "warned of"),
]


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
@pytest.mark.parametrize(("key", "text", "answer"), KEYS)
def test_a_key_of_the_documents_has_its_answer(prefix: str, key: str, text: str, answer: Answer) -> None:
    assert key in BY_KEY or key.startswith(FACTORY_SCHEME)
    given = {prefix + key: text}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if answer == "refused":
            with pytest.raises(ConfigurationError, match=re.escape(key)):
                CommitterConfig.from_hadoop(given)
            return
        config = CommitterConfig.from_hadoop(given)
    names_the_key = [prefix + key in str(warning.message) for warning in told]
    if answer == "honoured":
        assert config != CommitterConfig()
    else:
        assert config == CommitterConfig()
        assert names_the_key == ([True] if answer == "warned of" else [])
    if answer == "tells which job" and not key.endswith("require.uuid"):
        assert job_identity(given) != job_identity({})


def test_the_table_is_of_every_key_that_hadoop_has() -> None:
    ours = {key for key in BY_KEY if key.startswith("committer.")}
    stores = {"fs.s3a.create.checksum.algorithm", "fs.s3a.create.storage.class", "fs.s3a.fast.upload.active.blocks"}
    tested = {key for key, *_ in (*KEYS, *HONOURED) if FACTORY_SCHEME not in key}
    assert set(BY_KEY) - ours - stores - {FACTORY_SCHEME} == tested - ours - stores


def test_an_algorithm_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it can be 1 or 2"):
        CommitterConfig.from_hadoop({F + "algorithm.version": "3"})


# --- Committers ---------------------------------------------------------------------------------------------------

LIB = "org.apache.hadoop.mapreduce.lib.output."
S3A = "org.apache.hadoop.fs.s3a.commit."
SPARK = "org.apache.spark.internal.io.cloud."

# Every committer that the documents name, and what an error says to use; nothing where it is one of this engine's.
COMMITTERS: dict[str, str] = {
    "manifest": "",
    "magic": "",
    "directory": "",
    "partitioned": "",
    "stocator": "",
    "block-list": "",
    "file-v1": "",
    "file-v2": "",
    "file": "'file-v1'",
    "staging": "'directory' or 'partitioned'",
    "magicv2": "'magic'",
    "direct": "'stocator'",
    "jindo": "magic",
    "emrfs": "'magic'",
    "dbio": "leave the name out",
    LIB + "FileOutputCommitter": "'file-v1'",
    LIB + "FileOutputCommitterFactory": "'file-v1'",
    LIB + "NamedCommitterFactory": "leave the name out",
    LIB + "BindingPathOutputCommitter": "leave the name out",
    LIB + "committer.manifest.ManifestCommitter": "'manifest'",
    MANIFEST_FACTORY: "'manifest'",
    AZURE_FACTORY: "'manifest'",
    S3A_FACTORY: "leave the name out",
    S3A + "magic.MagicS3GuardCommitter": "'magic'",
    S3A + "magic.MagicS3GuardCommitterFactory": "'magic'",
    S3A + "staging.StagingCommitter": "'directory' or 'partitioned'",
    S3A + "staging.DirectoryStagingCommitter": "'directory'",
    S3A + "staging.DirectoryStagingCommitterFactory": "'directory'",
    S3A + "staging.PartitionedStagingCommitter": "'partitioned'",
    S3A + "staging.PartitionedStagingCommitterFactory": "'partitioned'",
    "S3MultipartOutputCommitter": "'directory' or 'partitioned'",
    "S3DirectoryOutputCommitter": "'directory'",
    "S3PartitionedOutputCommitter": "'partitioned'",
    "org.apache.parquet.hadoop.ParquetOutputCommitter": "'file-v1'",
    "DirectOutputCommitter": "'stocator'",
    SPARK + "BindingParquetOutputCommitter": "leave the name out",
    SPARK + "PathOutputCommitProtocol": "leave the name out",
    "com.aliyun.emr.fs.oss.commit.JindoOssCommitter": "magic",
    JINDO_FACTORY: "magic",
}


@pytest.mark.parametrize(("name", "instead"), COMMITTERS.items())
async def test_a_committer_of_the_documents_is_known_or_refused_with_what_to_use(
    name: str, instead: str, tmp_path: Path
) -> None:
    assert (name in BUILT_IN) is not bool(instead)
    if not instead:
        return
    with pytest.raises(UnsupportedError) as caught:
        await committer.open_job(tmp_path / "table", committer=name)
    assert instead in (caught.value.next_step or "")
    assert not (tmp_path / "table").exists()


def test_every_committer_here_is_in_the_table() -> None:
    assert set(COMMITTERS) >= set(BUILT_IN)


def test_a_class_of_java_is_warned_of_with_what_to_use() -> None:
    with pytest.warns(UserWarning, match="`oss:` paths have the committer `magic`"):
        CommitterConfig.from_hadoop({OC + "factory.scheme.oss": JINDO_FACTORY})


# --- The page -----------------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "hadoops-documents.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_SUITES = re.compile(r"\*\*(\w+)\*\*")
ROWS = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ") and not line.startswith("| ---")]
# What Hadoop's suites of committers are called.
SUITES = {
    "AbstractITCommitProtocol",
    "ITestCommitOperationCost",
    "ITestCommitOperations",
    "ITestDirectoryCommitProtocol",
    "ITestMagicCommitProtocol",
    "ITestPartitionedCommitProtocol",
    "ITestS3ACommitterMRJob",
    "ITestStagingCommitProtocolFailure",
    "ITestUploadRecovery",
    "TestDirectoryCommitterScale",
    "TestMagicCommitPaths",
    "TestPaths",
    "TestStagingCommitter",
    "TestStagingDirectoryOutputCommitter",
    "TestStagingPartitionedFileListing",
    "TestStagingPartitionedJobCommit",
    "TestStagingPartitionedTaskCommit",
    "TestTasks",
    "TestUploadEtag",
    "CommitterEventHandler",
    "MRAppMaster",
    "TestFileOutputCommitter",
    "TestPreemptableFileOutputCommitter",
    "ITestAbfsManifestStoreOperations",
    "TestAbfsRenameRetryRecovery",
    "TestCleanupStage",
    "TestCommitTaskStage",
    "TestCreateOutputDirectoriesStage",
    "TestEntryFileIO",
    "TestJobThroughManifestCommitter",
    "TestLoadManifestsStage",
    "TestManifestCommitProtocol",
    "TestRenameStageFailure",
    "TestTaskManifestFileIO",
    "TestTaskPool",
}


@cache
def _tests_of(file: str) -> frozenset[str]:
    """Functions of a module that pytest takes for tests."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_every_test_that_the_page_names_is_there() -> None:
    named = _NAMED.findall("\n".join(ROWS))
    assert len(named) > 120
    assert not [f"{file}::{test}" for file, test in named if test and test not in _tests_of(file)]
    assert not [file for file, _ in named if not (ROOT / file).exists()]


def test_every_row_names_a_test_or_says_why_there_is_none() -> None:
    headings = ("| the documents name", "| suite: what it tries", "| in Hadoop and Spark")
    without = [line for line in ROWS if not line.startswith(headings) and not _NAMED.search(line)]
    assert [line.split(" | ")[1] for line in without] == ["[Guarantees](guarantees.md)", "no marker is renamed here |"]


def test_every_suite_of_hadoops_is_on_the_page() -> None:
    assert set(_SUITES.findall("\n".join(ROWS))) >= SUITES
