"""What every store that is reached by HTTP is beside its calls: where it is, and how it shows itself."""

from __future__ import annotations

from committer.stores.base import Store
from committer.stores.http import HttpClient


class HttpStore(Store):
    """A bucket or container of a service that is reached by HTTP. A subclass sets what is named here.

    Its pickle holds no connection, which belongs to one process, and no secret: references to those.
    """

    _scheme: str
    _authority: str
    _endpoint: str
    _access: object
    _http: HttpClient

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._scheme}://{self._authority}, {self._endpoint}, {self._access!r})"

    @property
    def scheme(self) -> str:
        """That of its URIs."""
        return self._scheme

    @property
    def endpoint(self) -> str:
        """The service's endpoint, with the bucket where limits are a bucket's, and not an account's."""
        return self._endpoint

    async def close(self) -> None:
        """Closes the running loop's connections."""
        await self._http.close()
