"""Settings of an emulated account, and switches for behaviour that the service's documents leave open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DEFAULT_ACCOUNT = "devstoreaccount1"
# Not a secret: Microsoft publishes this key for development accounts (learn.microsoft.com, "Use the Azurite emulator").
DEFAULT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One account.

    Attributes:
        account: Its name.
        key: Its key, in base64.
        bearer_tokens: The OAuth tokens it accepts. Each must have the form of a JWT: three parts of base64url.
        hierarchical: Whether it has a hierarchical namespace. A flat account refuses access control and says so where
            the service does; its paths still form a tree.
        soft_delete_days: For how many days it says that it keeps deleted blobs, 1 to 365; 0 is off. What is deleted
            here is gone either way.
        rate: Requests a second it serves; above, it answers 503 `ServerBusy`. 0 is no limit.
        burst_seconds: How many seconds' worth of `rate` may come at once after a quiet time.
        retry_after: Seconds named in the `Retry-After` of those answers; None leaves the header out. The documents
            promise neither.
        list_page: Paths in one page of a listing at most. The documents say 5,000.
        delete_page: Paths deleted in one call of a recursive delete, which then answers with a continuation. The
            documents say "limited" and no number; an account with a hierarchical namespace mostly deletes at once,
            which 0 stands for. The default makes clients that forget the continuation fail.
        etag_through_rename: Whether a renamed path keeps its etag. Hadoop's ABFS client relies on it (path capability
            `fs.capability.etags.preserved.in.rename`), the REST documents say nothing.
        overwriting_breaks_lease: Whether creating or renaming onto a leased path without its lease id succeeds and
            ends the lease, as "Path - Create" says; False answers 412 `LeaseIdMissing` as for other operations.
        non_empty_target_code: The error code of a directory rename onto a directory that holds something. The
            documents describe `DirectoryNotEmpty` for deletes only; Apache Arrow's client, tested against the service,
            expects `PathAlreadyExists`. Both are 409.
        type_change_code: The error code of creating a file where a directory is, or a directory where a file is: the
            documents list several that fit. All are 409.
        trailing_period: What becomes of a name that ends in a period. The documents advise against such names, Hadoop's
            client refuses them, the service's answer is not described.
        rename_source_needs_sas: Whether a rename that is authorised by SAS must carry one in `x-ms-rename-source` too,
            as Hadoop's client does, and the official ones for a SAS given as text (not for an AzureSasCredential).
        clock_skew: Seconds by which a SharedKey request's date may be off, the service's 15 minutes; 0 is unlimited.
        request_log: How many requests the log keeps.
    """

    account: str = DEFAULT_ACCOUNT
    key: str = field(default=DEFAULT_KEY, repr=False)
    bearer_tokens: frozenset[str] = field(default=frozenset(), repr=False)
    hierarchical: bool = True
    soft_delete_days: int = 0
    rate: float = 0.0
    burst_seconds: float = 0.1
    retry_after: float | None = 1.0
    list_page: int = 5_000
    delete_page: int = 5_000
    etag_through_rename: Literal["kept", "changed"] = "kept"
    overwriting_breaks_lease: bool = True
    non_empty_target_code: Literal["DirectoryNotEmpty", "PathAlreadyExists"] = "DirectoryNotEmpty"
    type_change_code: Literal["PathAlreadyExists", "ResourceTypeMismatch", "PathConflict"] = "PathAlreadyExists"
    trailing_period: Literal["refused", "kept"] = "refused"
    rename_source_needs_sas: bool = True
    clock_skew: float = 900.0
    request_log: int = 100_000
