"""The magic committer: tasks send their files to uploads, job commit completes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.committers.publish_action import PublishAction
from committer.committers.recording import RecordingCommitter
from committer.committers.upload_action import UploadAction
from committer.paths import StorePath
from committer.spec import Delivery
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import StageContext
from committer.stages.setup_task import AttemptIdentity
from committer.stages.uploaded_files import UploadedFiles

_NEEDS: Final = {
    "multipart": "withhold the completion of an upload",
    "exclusive_put": "create a file exclusively",
    "conditional_delete": "delete a file on the condition that it is still the one that was seen",
}


class MagicCommitter(RecordingCommitter):
    """S3A's magic committer without magic paths: a file is sent to where it goes, and its upload stays open.

    For stores that have uploads and no renames: Amazon S3 and compatibles.
    """

    name = "magic"
    default_delivery: Delivery = "message"
    needs: Mapping[str, str] = _NEEDS
    action: PublishAction = UploadAction()

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Uploads to where the files go."""
        return UploadedFiles(context, identity)
