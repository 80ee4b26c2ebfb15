"""Emulated Google Cloud Storage: the JSON API, as its reference describes it.

In a process of its own, which prints the service's URL as its only line and ends on SIGTERM:

    python -m committer_testing.emulators.gcs [--port N] [--project ID] [--rate R] [--hierarchical] [--without-move]
                                              [--soft-delete-seconds N] [--object-change-seconds S]
                                              [--bucket NAME]... [--token TOKEN]...
                                              [--certificate PEM [--private-key PEM]]

or in the process of a test:

    async with serve(Settings(rate=1000)) as emulator:
        emulator.make_bucket("data")
        storage = Client(project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": emulator.url})

It keeps everything in memory, binds to 127.0.0.1 and gives every answer the status, reason, body and headers that the
documents name. Where they leave something open there is a switch in `Settings`. Google's clients find it by
`STORAGE_EMULATOR_HOST`, Java's connector by `fs.gs.storage.root.url` with `fs.gs.auth.type=UNAUTHENTICATED`.

**What it does**, strictly. Preconditions (`ifGenerationMatch` and its relatives, for the source of a copy, too) hold
for every call. `moveTo` is one step: never is an object at both names, or at neither. An insert takes its data plain,
with metadata (`multipart/related`) or in chunks (resumable, with status queries, and with the rule that a chunk is a
multiple of 256 KiB); CRC32C and MD5 are verified where the client sends them. `rewriteTo` may take several calls and
gives tokens. A listing has `prefix`, `delimiter`, `includeTrailingDelimiter`, `startOffset`, `endOffset`, pages and
`fields`. Batches, `compose`, `patch`, `update`, soft delete with `restore`, holds, retention of buckets and of objects,
`storageLayout` and `testIamPermissions` are there. A change that comes again with its `x-goog-gcs-idempotency-token`
gets the earlier answer.

**Authorisation.** Bearer tokens: those of `Settings.bearer_tokens` (`--token`), and those that `/token` gives for a
refresh token or a signed assertion (name it as `token_uri` in a credentials file; the signature is not verified) and
`/computeMetadata/v1/...` gives as a virtual machine's metadata server does. Without `--token`, requests without a token
may do everything.

**Control.** `/_control` needs no authorisation, speaks JSON and is neither logged, counted nor limited.

- `POST /_control/faults` adds a fault or a list of them; `GET` shows them with their hits, `DELETE` removes all.
  `Fault` describes the fields: `{"kind": "reset-after", "operation": "move", "path_prefix": "data/out", "count": 3}`
  drops the connection after each of the next three moves to names below `data/out` has happened; with
  `"per_request": true` instead of a count every request's first try is hit, known again by its idempotency token.
- `POST /_control/rate` with `{"rate": R}` caps requests a second; what comes above gets `Settings.throttle_status`. 0
  lifts the cap.
- `GET /_control/counters`: requests served and throttled, by whole seconds since the start, in total, by operation,
  and answers by status; `DELETE` starts anew.
- `GET /_control/requests`: the last requests, oldest first, with their idempotency token and User-Agent
  (`LoggedRequest` describes the fields). Any field may be a parameter that selects
  (`?operation=move&status=200`), as may `path_prefix` and `limit`; `DELETE` empties the log.
- `DELETE /_control/buckets` takes all buckets away.

Operations are called `list-buckets, create-bucket, get-bucket, patch-bucket, delete-bucket, get-storage-layout,
test-permissions, lock-retention-policy, list, insert, start-upload, upload-chunk, cancel-upload, get, read, move,
rewrite, copy, compose, patch, update, delete, restore`. A call in a batch is one of them; the batch is none.

**Not emulated**, and answered with 501 where asked for by name: object versions, folders and managed folders, access
control lists, notifications, encryption keys, `matchGlob`. Nor is the XML API with its multipart uploads: they take no
preconditions, so no committer can use them ("Request preconditions").
"""

from __future__ import annotations

from committer_testing.emulators.faults import Fault
from committer_testing.emulators.gcs.server import GcsEmulator, serve
from committer_testing.emulators.gcs.settings import Settings

__all__ = ["Fault", "GcsEmulator", "Settings", "serve"]
