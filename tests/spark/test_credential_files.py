"""Secrets in Hadoop's credential files (jceks): the job side gets them from the JVM, and no log or record shows them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from committer.spark.jvm.building import spark_jars
from tests.cli.test_doctor_of_spark import examined

from .cluster import environment
from .protocol_places import Place, place_of
from .test_protocol_adls import KEY, shown_in, talkative_driver
from .test_protocol_stores import rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with"),
]

PROVIDERS = "hadoop.security.credential.provider.path"
OF_S3A = "fs.s3a.security.credential.provider.path"


def credential_file(scratch: Path, secrets: Mapping[str, str], **variables: str) -> str:
    """A file with these secrets, as Hadoop's own tool makes it; the URI that settings name it by."""
    uri = f"localjceks://file{scratch / 'credentials.jceks'}"
    inherited = {**environment(scratch / "java"), **variables}
    for name, value in secrets.items():
        subprocess.run(
            [
                f"{inherited['JAVA_HOME']}/bin/java",
                "-cp",
                f"{spark_jars()}/*",
                "org.apache.hadoop.security.alias.CredentialShell",
                *("create", name, "-value", value, "-provider", uri),
            ],
            env=inherited,
            capture_output=True,
            check=True,
            timeout=300,
        )
    return uri


def moved(place: Place, scratch: Path, *names: str) -> str:
    """A credential file with these of the session's keys, which are in no setting any more."""
    return credential_file(scratch, {name: place.hadoop.pop(name) for name in names})


def write(place: Place, driver: object, table: str) -> str:
    told = driver.run("write", dest=place.uri(table), query="select 1L id")  # type: ignore[attr-defined]
    return str(told.get("error"))


def test_a_key_of_azure_is_read_from_a_file_and_logged_nowhere(tmp_path: Path) -> None:
    with place_of("abfs", tmp_path / "server", key=KEY) as place:
        (name,) = [name for name, value in place.hadoop.items() if value == KEY]
        place.hadoop[PROVIDERS] = credential_file(tmp_path, {name: KEY})
        driver = talkative_driver(place, tmp_path)
        # That put the key into core-site.xml; there is a wrong one now.
        site = tmp_path / "core-site.xml"
        site.write_text(site.read_text().replace(KEY, "d3Jvbmc="))
        try:
            assert write(place, driver, "t") == "None"
            driver.run("without_python")
            assert write(place, driver, "t") == "None"
            assert rows(place, "t") == {"": [1, 1]}
        finally:
            driver.close()
        everything = shown_in(place, tmp_path)
        assert any(b"py4j" in text for name, text in everything.items() if name.endswith("python.log"))
        assert any(b"DEBUG" in text for text in everything.values())
        assert not [name for name, text in everything.items() if KEY.encode() in text]


@pytest.mark.parametrize("setting", [OF_S3A, "fs.s3a.bucket.{bucket}.security.credential.provider.path"])
def test_keys_of_s3_are_read_from_its_own_files(tmp_path: Path, setting: str) -> None:
    with place_of("s3a", tmp_path / "server") as place:
        bucket = place.root.rpartition("/")[2]
        file = moved(place, tmp_path, "fs.s3a.access.key", "fs.s3a.secret.key")
        driver = place.driver(tmp_path / "driver", {setting.format(bucket=bucket): file})
        try:
            assert write(place, driver, "t") == "None"
            assert rows(place, "t") == {"": [1]}
        finally:
            driver.close()


@pytest.mark.allow_blocking("it runs the command")
def test_doctor_shows_the_names_and_what_keeps_a_file_shut(tmp_path: Path) -> None:
    with place_of("abfs", tmp_path / "server", key=KEY) as place:
        (name,) = [name for name, value in place.hadoop.items() if value == KEY]
        del place.hadoop[name]
        for password in "none", "another":
            file = credential_file(tmp_path / password, {name: KEY}, HADOOP_CREDSTORE_PASSWORD=password)
            settings = {**place.hadoop, PROVIDERS: file}
            done = examined(
                place.uri("t"),
                tmp_path / password / "conf",
                {
                    "spark.jars": ",".join(map(str, place.jars)),
                    **{f"spark.hadoop.{key}": value for key, value in settings.items()},
                },
            )
            assert KEY not in done.stdout + done.stderr
            if password == "none":
                assert done.returncode == 0, done.stdout
                assert f"they hold {name}" in done.stdout
                assert f"{name} (secret)" in done.stdout
            else:
                assert done.returncode == 1
                assert f"the credentials in {file}, which {PROVIDERS} names, cannot be read" in done.stdout
                assert "HADOOP_CREDSTORE_PASSWORD" in done.stdout
        assert place.read("t") == {}
