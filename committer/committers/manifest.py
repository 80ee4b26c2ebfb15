"""The manifest committer: tasks record their files, job commit renames them into place."""

from __future__ import annotations

from collections.abc import Mapping

from committer.committers.actions import PublishAction, RenameAction, needs_of
from committer.committers.base import Committer
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, RecordForms, StageContext
from committer.stages.load.manifest_forms import MANIFEST_COMMITTER, ManifestForms
from committer.stages.task.attempt_files import AttemptFiles, StagedFiles


class ManifestCommitter(Committer):
    """Hadoop's manifest committer, for stores that rename a file atomically without replacing."""

    name = "manifest"
    needs: Mapping[str, str] = needs_of("atomic_file_rename", "no_replace_rename", "exclusive_put")
    action: PublishAction = RenameAction()

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns Hadoop's task manifests."""
        return ManifestForms(MANIFEST_COMMITTER)

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns the files of the task attempt directory."""
        return StagedFiles(context, directory)
