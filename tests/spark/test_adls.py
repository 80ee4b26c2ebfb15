"""The data source on an emulated account of Azure Data Lake Storage: three ways of authentication, and no secret anywhere."""

from __future__ import annotations

import base64
import http.server
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.tls import certificate_in
from tests.stores.adls_account import AUTHORITY
from tests.stores.adls_process import Account, account_process

from .cluster import Driver, standalone_cluster
from .store_driver import ROWS
from .test_protocol_adls import LOGGING

official = pytest.importorskip("azure.storage.filedatalake", reason="it looks at the account")

pytestmark = [pytest.mark.spark, pytest.mark.java]

SCRIPT = Path(__file__).with_name("store_driver.py")
KEY = base64.b64encode(b"the canary of all account keys").decode()
# In the form of a JSON Web Token.
TOKEN = ".".join(
    base64.urlsafe_b64encode(b"a canary of all tokens, part %02d" % part).decode().rstrip("=") for part in range(3)
)
IDENTITY = "the-canary-of-all-identity-headers"


class Identity(http.server.BaseHTTPRequestHandler):
    """Gives the token, as the identity endpoint of an App Service does."""

    def do_GET(self) -> None:
        known = self.headers.get("X-IDENTITY-HEADER") == IDENTITY
        answer = {"access_token": TOKEN, "expires_on": str(int(time.time()) + 3600), "token_type": "Bearer"}
        self.send_response(200 if known else 403)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer if known else {}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def identity_endpoint() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Identity) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/msi/token"
        server.shutdown()


def signature() -> str:
    text: str = official.generate_account_sas(
        AUTHORITY.partition("@")[2].partition(".")[0],
        KEY,
        resource_types=official.ResourceTypes(service=True, file_system=True, object=True),
        permission=official.AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return text


class Place:
    """An account, and what Spark's processes are told of it.

    Args:
        scratch: For files and logs.
        account: The account.
        identity: Where tokens are.
        certificate: The account's.
    """

    def __init__(self, scratch: Path, account: Account, identity: str, certificate: Path) -> None:
        self.scratch = scratch
        self.account = account
        self.signature = signature()
        (scratch / "python").mkdir()
        (scratch / "python" / "sitecustomize.py").write_text(LOGGING)
        (scratch / "key").write_text(KEY)
        self.variables = {
            "ADLS_ENDPOINT": account.endpoint,
            "ADLS_SIGNATURE": self.signature,
            "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
            "IDENTITY_ENDPOINT": identity,
            "IDENTITY_HEADER": IDENTITY,
            "SSL_CERT_FILE": str(certificate),
            "PYTHON_LOG": str(scratch / "python.log"),
            "PYTHONASYNCIODEBUG": "1",
            "PYTHONPATH": str(scratch / "python"),
            "SPARK_LOG_LEVEL": "DEBUG",
        }

    @property
    def ways(self) -> dict[str, dict[str, str]]:
        """Storage options."""
        endpoint = {"endpoint": "env:ADLS_ENDPOINT"}
        return {
            "key": {**endpoint, "account_key": f"file:{self.scratch / 'key'}"},
            "signature": {**endpoint, "sas_token": "env:ADLS_SIGNATURE"},
            "token": endpoint,
        }

    @property
    def secrets(self) -> list[str]:
        sealed = self.signature[self.signature.index("sig=") + 4 :].partition("&")[0]
        return [KEY, sealed, *TOKEN.split("."), IDENTITY]

    def rows(self, directory: str) -> dict[int, tuple[int, ...]]:
        """For each row, the numbers of the attempts that brought it."""
        import pyarrow.parquet as pq

        found: dict[int, tuple[int, ...]] = {}
        for name, data in self.account.files(directory).items():
            if name.endswith(".parquet"):
                table = pq.read_table(io.BytesIO(data), columns=["id", "attempt"])
                for row, number in zip(*(table.column(one).to_pylist() for one in ("id", "attempt")), strict=True):
                    found[row] = (*found.get(row, ()), number)
        return found

    def logs(self) -> dict[str, bytes]:
        """All that the processes of Spark wrote: logs, events with their plans."""
        found: dict[str, bytes] = {}
        # Java is still removing its temporary directories, which `Path.rglob` does not bear.
        for folder, _folders, names in os.walk(self.scratch):
            for name in set(names) - {"key", "certificate.pem"}:
                with suppress(FileNotFoundError):
                    found[f"{folder}/{name}"] = (Path(folder) / name).read_bytes()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    certificate = certificate_in(tmp_path)
    with (
        identity_endpoint() as identity,
        account_process("--token", TOKEN, key=KEY, certificate=certificate) as account,
    ):
        yield Place(tmp_path, account, identity, certificate)


def check_complete(place: Place, directory: str) -> dict[int, tuple[int, ...]]:
    """Every row is there once, and of the job nothing is left but its result."""
    rows = place.rows(directory)
    assert sorted(rows) == list(range(3 * ROWS))
    assert {len(numbers) for numbers in rows.values()} == {1}
    names = place.account.sizes(directory)
    assert {name.partition("/")[0] for name in names} == {"_SUCCESS", "d=0", "d=1", "d=2", "d=3"}
    return rows


def test_the_winners_are_there_and_no_secret_is_anywhere(place: Place) -> None:
    driver = Driver("local[2,4]", place.scratch / "driver", SCRIPT, place.variables)
    uri, ways = place.account.uri, place.ways
    seen: list[str] = []
    try:
        assert driver.run("save", dest=uri("key"), storage=ways["key"], way="failing") == {}
        rows = check_complete(place, "key")
        assert 0 not in {rows[row][0] for row in range(ROWS, 3 * ROWS)}
        assert driver.run("save", dest=uri("token"), storage=ways["token"], way="plain") == {}
        assert set(check_complete(place, "token").values()) == {(0,)}
        told = driver.run("overwrite", dest=uri("key"), storage=ways["signature"])
        assert (told["success"], told["files"]) == (True, 12)
        assert set(check_complete(place, "key").values()) == {(0,)}
        seen.append(json.dumps(told))
        place.account.control("POST", "faults", {"kind": "error", "status": 403, "code": "AuthenticationFailed"})
        for way in ("signature", "token"):
            told = driver.run("save", dest=uri("key"), storage=ways[way], way="plain")
            assert "StorePermissionError" in told["error"]
            seen.append(json.dumps(told))
        place.account.control("DELETE", "faults")
    finally:
        driver.close()
    assert place.account.sizes("reports")
    check_canaries(place, seen, b"azure.identity")


def check_canaries(place: Place, seen: list[str], *signs: bytes) -> None:
    texts = {
        **place.logs(),
        **place.account.files("reports"),
        "requests": json.dumps(place.account.control("GET", "requests")).encode(),
        "seen": "\n".join(seen).encode(),
    }
    found = {(secret, name) for secret in place.secrets for name, text in texts.items() if secret.encode() in text}
    assert not found
    # What was looked through is what would show them.
    everything = b"\n".join(texts.values())
    for sign in (b"SparkListenerSQLExecutionStart", b"Physical Plan", b"DEBUG", b"env:ADLS_SIGNATURE", *signs):
        assert sign in everything, sign


@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
def test_the_loser_of_a_speculation(place: Place) -> None:
    with standalone_cluster(place.scratch, place.variables) as master:
        driver = Driver(master, place.scratch / "driver", SCRIPT, place.variables)
        try:
            storage, flag = place.ways["signature"], str(place.scratch / "flag")
            assert driver.run("save", dest=place.account.uri("table"), storage=storage, way="losing", flag=flag) == {}
        finally:
            driver.close()
    rows = check_complete(place, "table")
    # Once its copy has handed over all rows the first attempt goes on, too: which of the two wins is Spark's to say.
    assert {rows[row] for row in range(ROWS, 2 * ROWS)} in ({(0,)}, {(1,)})
    check_canaries(place, [])
