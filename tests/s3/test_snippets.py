"""The snippets of the page of S3, on a real server; see tests/test_snippets.py."""

from __future__ import annotations

import re
from pathlib import Path

from tests.s3.servers import KEY, KEY_ID, Server
from tests.snippets import run_in_child, runnable


def test_the_snippets_of_the_page_run(server: Server, tmp_path: Path) -> None:
    found = runnable("docs/stores/s3.md")
    server.client.create_bucket(Bucket="lake")
    [job] = re.findall(r'^job_id = "(.+)"$', "".join(one.text for one in found), re.MULTILINE)
    # What Hadoop's setup of this job leaves.
    server.client.put_object(Bucket="lake", Key=f"events/__magic_job-{job}/job-{job}/00/", Body=b"")
    environment = {"AWS_ENDPOINT_URL_S3": server.url, "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": KEY}
    run_in_child(found, tmp_path, environment)
    listed = server.client.list_objects_v2(Bucket="lake", Prefix="events/")["Contents"]
    assert {entry["Key"] for entry in listed} == {
        "events/_SUCCESS",
        "events/part-2.csv",
        "events/year=2026/part-0.csv",
        "events/year=2026/part-1.csv",
    }
