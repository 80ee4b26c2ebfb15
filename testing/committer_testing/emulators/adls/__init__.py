"""An emulated Azure Data Lake Storage Gen2 account: the DFS endpoint, and of the blob endpoint what goes with it.

In a process of its own, which prints the account's URL as its only line and ends on SIGTERM:

    python -m committer_testing.emulators.adls [--port N] [--account NAME] [--key KEY] [--rate R] [--burst-seconds S]
        [--flat]
                                               [--soft-delete-days N]
                                               [--filesystem NAME]... [--token JWT]...
                                               [--certificate PEM [--private-key PEM]]

or in the process of a test:

    async with serve(Settings(rate=1000)) as emulator:
        service = DataLakeServiceClient(emulator.url, credential=emulator.settings.key)

It keeps everything in memory, binds to 127.0.0.1 and gives every answer the status, error code, body and headers that
the REST documents name. Where they leave something open there is a switch in `Settings`.

**URLs.** An account has two endpoints, which differ in errors, headers and calls. Three forms of URL reach them:

- `http://127.0.0.1:PORT/ACCOUNT`, the one printed: both. A call is the blob endpoint's if only that one has it
  (`restype`, `comp`, `x-ms-blob-type`) or if the client accepts XML and no JSON, as the official clients do there. The
  official data lake client sends its blob calls here, since it makes a blob URL by replacing `.dfs.` with `.blob.`;
  Hadoop's ABFS client comes here with `fs.azure.abfs.endpoint=127.0.0.1:PORT`.
- `http://127.0.0.1:PORT/ACCOUNT.dfs.emulator` and `.../ACCOUNT.blob.emulator`: one endpoint each; what follows `.dfs.`
  or `.blob.` does not matter, and the official client finds the second by itself.
- `http://ACCOUNT.dfs.HOST:PORT` and `http://ACCOUNT.blob.HOST:PORT`, as in the cloud, where such names resolve.

**Authorisation** is verified: SharedKey; account SAS, and service SAS for a filesystem, a directory or a file, with
times, permissions, protocol and address; bearer tokens that `Settings.bearer_tokens` (`--token`) lists. The key and the
tokens may do everything: no access control list ever denies.

**Control.** `/_control` needs no authorisation, speaks JSON and is neither logged, counted nor limited.

- `POST /_control/faults` adds a fault or a list of them; `GET` shows them with their hits, `DELETE` removes all.
  `Fault` describes the fields: `{"kind": "reset-after", "operation": "rename", "path_prefix": "data/out", "count": 3}`
  drops the connection after each of the next three renames to paths below `data/out` has happened; with
  `"per_request": true` instead of a count every request's first try is hit.
- `POST /_control/rate` with `{"rate": R}` caps requests a second; what comes above gets 503 `ServerBusy` with
  `Retry-After`. 0 lifts the cap.
- `GET /_control/counters`: requests served and throttled, by whole seconds since the start, in total, by operation,
  and answers by status; `DELETE` starts anew.
- `GET /_control/requests`: the last requests, oldest first, with their client request id and User-Agent
  (`LoggedRequest` describes the fields). Any field may be a parameter that selects
  (`?operation=rename&status=201`), as may `path_prefix` and `limit`; `DELETE` empties the log.
- `DELETE /_control/filesystems` empties the account.

Operations are called `list-filesystems, create-filesystem, get-filesystem-properties, set-filesystem-properties,
delete-filesystem, lease-filesystem, list, create-file, create-directory, rename, append, flush, read, get-properties,
get-status, get-access-control, check-access, set-properties, set-access-control, set-access-control-recursive, delete,
lease`, and on the blob endpoint `get-account-information, get-service-properties, get-filesystem-policies,
set-filesystem-policies, put-blob, set-metadata, set-http-headers`.

**Not emulated**, and answered with 501 where asked for by name: undeleting, snapshots, versions, tags, expiry,
customer keys, encryption contexts, structured bodies, queries, batches, blocks, copies, listing blobs, stored access
policies in a SAS, user delegation. A lease protects the path it is on, and nothing about a directory that holds it.
"""

from __future__ import annotations

from committer_testing.emulators.adls.server import AdlsEmulator, serve
from committer_testing.emulators.adls.settings import DEFAULT_ACCOUNT, DEFAULT_KEY, Settings
from committer_testing.emulators.faults import Fault

__all__ = ["DEFAULT_ACCOUNT", "DEFAULT_KEY", "AdlsEmulator", "Fault", "Settings", "serve"]
