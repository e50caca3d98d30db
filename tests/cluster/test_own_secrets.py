"""Attempts to read what replicas share, cluster.key and the address of the database, through an HTTP tool."""

import json
from urllib.parse import urlsplit

import httpx
import pytest
from cluster.members import KEY, Replica
from upstream import Reply, Upstream

pytestmark = pytest.mark.attack("secrets")

TOKEN = "sesame-token-0123456789"
BUNDLE = "/tools/bundles/01890a5d-ac96-774b-bcce-000000000001"


@pytest.fixture
def place():
    with Upstream(Reply(body=b"{}")) as upstream:
        yield upstream


@pytest.mark.long
def test_no_tool_sends_what_replicas_share(tmp_path, database_url, place):
    written = urlsplit(database_url)
    secrets = {
        "KEY_COPY": KEY,
        "KEY_HEADER": f"Bearer {KEY}",
        "DATABASE_COPY": database_url,
        "DATABASE_INSIDE": f"at {database_url} ",
        **({"DATABASE_PASSWORD": written.password} if written.password else {}),
        "OTHER": "other-0123456789-other",
    }
    hosts = [{"host": place.netloc, "allowPrivate": True}]
    more = f"http: {{token: {TOKEN}}}\nallowedHosts: {json.dumps(hosts)}\nsecrets: {json.dumps(secrets)}\n"
    replica = Replica(tmp_path / "a", database_url, more=more)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{replica.port}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30
        ) as client:
            assert client.put(BUNDLE, json={"slug": "mine"}).status_code == 201
            for number, name in enumerate(secrets):
                request = {"urlTemplate": f"{place.url}/x", "headers": {"X-A": f"${{{name}}}"}}
                path = f"{BUNDLE}/tools/t{number}/version/1"
                assert client.put(path, json={"type": "http", "httpImpl": {"request": request}}).status_code == 201
                said = client.post(f"{path}/invoke", json={"args": {}}).json()
                assert said["ok"] is (name == "OTHER"), (name, said)
    finally:
        replica.stop()
    [seen] = place.seen
    assert seen.headers["x-a"] == secrets["OTHER"]
