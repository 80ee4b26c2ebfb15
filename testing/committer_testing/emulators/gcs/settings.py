"""Settings of an emulated service, and switches for behaviour that the service's documents leave open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One service with its buckets.

    Attributes:
        project: The project that buckets are made in where a request names none.
        bearer_tokens: The OAuth tokens it accepts. With none, requests without a token may do everything, as on
            buckets that are open to all; a token that is not known is refused either way.
        denied: Permissions that no caller has, e.g. `storage.objects.delete`: what needs one is refused with 403.
        hierarchical: Whether new buckets have a hierarchical namespace. Files behave alike; folders are not emulated.
        soft_delete_seconds: How long new buckets keep deleted objects; 0 is off. The service's default is seven days
            ("Soft delete").
        has_move: Whether it knows `moveTo`. False answers as servers that lack it do.
        missing_move_status: With which status they do: fake-gcs-server 400, others 404 or 501.
        rate: Requests a second it serves; above, it answers `throttle_status`. 0 is no limit.
        burst_seconds: How many seconds' worth of `rate` may come at once after a quiet time.
        throttle_status: 429 `rateLimitExceeded` or 503 `backendError`; the documents name both for too many requests.
        retry_after: Seconds named in the `Retry-After` of those answers; None leaves the header out. The documents
            promise none ("Retry strategy").
        object_change_seconds: How long after a change of an object name the next is refused with 429; 0 is off. The
            service allows about one a second ("Quotas and limits"), and tolerates short bursts.
        list_page: Objects and prefixes in one page of a listing at most. The documents say 1,000.
        rewrite_bytes: Bytes copied in one call of `rewriteTo` where the caller names fewer or none; 0 is no limit. The
            service copies at once within a location and storage class and may take several calls otherwise; a small
            number makes clients that forget the token fail.
        condition_on_absent: What a read, change or deletion of an object that is not there answers when it names a
            generation: 404 `notFound`, or 412 `conditionNotMet`. The documents do not say.
        ignored_conditions: Preconditions that it ignores, each as operation and parameter: `("delete",
            "ifGenerationMatch")`. The service ignores none; fake-gcs-server ignores those of all but inserts.
        idempotency_tokens: Whether a change that comes again with its `x-goog-gcs-idempotency-token` gets the earlier
            answer and has no second effect. The service does so (google-cloud-cpp, issue 12347); a proxy or another
            server may not.
        request_log: How many requests the log keeps.
    """

    project: str = "emulated"
    bearer_tokens: frozenset[str] = field(default=frozenset(), repr=False)
    denied: frozenset[str] = frozenset()
    hierarchical: bool = False
    soft_delete_seconds: int = 0
    has_move: bool = True
    missing_move_status: int = 501
    rate: float = 0.0
    burst_seconds: float = 0.1
    throttle_status: Literal[429, 503] = 429
    retry_after: float | None = None
    object_change_seconds: float = 0.0
    list_page: int = 1_000
    rewrite_bytes: int = 0
    condition_on_absent: Literal["not-found", "condition"] = "not-found"
    ignored_conditions: frozenset[tuple[str, str]] = frozenset()
    idempotency_tokens: bool = True
    request_log: int = 100_000
