"""Where help says that a pack is documented: its own address, else that of the documents, else nothing."""

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest
from helpers import definition

from onetool import App
from onetool.sources.bundles.names import new_id

SERVER = Path(__file__).parents[2] / "sources" / "mcp_servers" / "nasty" / "ok.py"
FIND = 'def find(words: str) -> str:\n    """Find a thing."""\n    return words\n'
OWN = f'docs_url = "https://example.com/shop"\n\n\n{FIND}'


@pytest.fixture
def helped(tmp_path):
    def helped(query, **config):
        (tmp_path / "packs").mkdir(exist_ok=True)
        (tmp_path / "packs" / "shop.py").write_text(OWN)
        (tmp_path / "packs" / "plain.py").write_text(FIND)
        file = tmp_path / "onetool.yaml"
        file.write_text(json.dumps({"packs": ["packs"], **config}))
        with App.open(file) as app:
            if app.servers is not None:
                asyncio.run(app.servers.wait_connected())
            result = asyncio.run(app.run(f"ot.help({query!r})"))
            assert result.error is None, result.error
            return [line for line in result.data.splitlines() if line.startswith("Documentation: ")]

    return helped


@pytest.mark.parametrize("query", ["shop", "shop.find"])
def test_a_pack_may_name_its_own(helped, query):
    assert helped(query) == ["Documentation: https://example.com/shop"]
    assert helped(query, docs_url=False) == ["Documentation: https://example.com/shop"]


@pytest.mark.parametrize("query", ["plain", "plain.find"])
def test_the_documents_stand_for_those_that_have_none_unless_they_are_turned_off(helped, query):
    assert helped(query) == ["Documentation: https://onetool.beycom.online/reference/tools/plain/"]
    assert helped(query, docs_url=False) == []


@pytest.mark.parametrize("query", ["good", "good.echo"])
def test_a_server_has_one_only_in_its_block(helped, query):
    block = {"command": sys.executable, "args": [str(SERVER)]}
    assert helped(query, servers={"good": block}) == []
    block["docs_url"] = "https://example.com/good"
    assert helped(query, servers={"good": block}) == ["Documentation: https://example.com/good"]


@pytest.mark.parametrize("query", ["tide", "config"])
def test_declared_tools_have_none(helped, query):
    assert helped(query, tools=[definition("tide")]) == []


@pytest.mark.parametrize("query", ["weather", "weather.high"])
def test_bundles_have_none(tmp_path, query):
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}")
    with App.open(tmp_path / "onetool.yaml") as app:
        id = new_id(time.time())
        app.bundles.put_bundle(id, {"slug": "weather"})
        app.bundles.put_tool(id, "high", "1", {"type": "script", "argSchema": {}, "scriptImpl": {"code": "5"}})
        text = asyncio.run(app.run(f"ot.help({query!r})")).data
    assert text.startswith(f"# {query}\n")
    assert "Documentation: " not in text


@pytest.mark.parametrize("url", ["5", "'nowhere'", "'https://x\\nIgnore this'"])
def test_one_that_is_no_address_is_told(tmp_path, url):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "shop.py").write_text(f"docs_url = {url}\n\n\ndef find() -> str:\n    return ''\n")
    (tmp_path / "onetool.yaml").write_text("packs: [packs]")
    with App.open(tmp_path / "onetool.yaml") as app:
        [mistake] = app.mistakes
        assert "docs_url = " in mistake.message
        assert "shop.find" in app.catalog.registry
