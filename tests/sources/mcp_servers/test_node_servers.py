"""The reference servers, which run in Node. `make setup` installs them where it can; elsewhere this is skipped."""

import asyncio
from pathlib import Path

import npm
import pytest
from sources.mcp_servers.harness import call, ran, settle

from onetool import ToolCall

FOLDER = Path(__file__).parents[3] / ".node-servers"
WANTED = Path(__file__).parent / "npm"

pytestmark = [pytest.mark.long, pytest.mark.skipif(not npm.is_installed(WANTED, FOLDER), reason=npm.why_not(FOLDER))]


def server(name, *args, **more):
    entry = FOLDER / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    command, *_ = npm.node()
    return {"command": command, "args": [str(entry), *args], **more}


@pytest.fixture
def everything(harness):
    with harness.app({"everything": server("everything")}) as app:
        yield app


def test_all_three_side_by_side(harness, tmp_path):
    (tmp_path / "files").mkdir()
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    blocks = {
        "everything": server("everything"),
        "files": server("filesystem", str(tmp_path / "files")),
        "memory": server("memory", env=memory),
    }
    with harness.app(blocks) as app:
        found = settle(app)
        assert {name: (status.state, status.error) for name, status in found.items()} == dict.fromkeys(
            blocks, ("connected", None)
        )
        ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
        assert call(app, "memory.create_entities", entities=[ada]).error is None
        read = call(app, "memory.search_nodes", query="program").data
        assert [entity["name"] for entity in read["entities"]] == ["Ada"]

        path = str(tmp_path / "files" / "a.txt")
        assert call(app, "files.write_file", path=path, content="hällo").error is None
        assert "hällo" in str(call(app, "files.read_text_file", path=path).data)
        outside = call(app, "files.read_text_file", path="/etc/hostname")
        assert outside.error.code == "execution_error"
        assert "outside allowed directories" in outside.error.message


def test_names_with_dashes_in_code(everything):
    code = "[everything.get_sum(a=2, b=3), everything.echo(message='hello')]"
    sums, echoed = ran(everything, code).data
    assert "5" in sums
    assert "hello" in echoed


def test_structured_content_is_the_value(everything):
    weather = call(everything, "everything.get-structured-content", location="Chicago").data
    assert set(weather) == {"temperature", "conditions", "humidity"}


def test_a_picture_is_a_handle_with_a_type(everything):
    parts = call(everything, "everything.get-tiny-image").data
    picture = next(part for part in parts if isinstance(part, dict))
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert picture["handle"]
    assert "iVBOR" not in str(parts)


def test_progress_comes_through(everything):
    told = []

    async def main():
        wanted = ToolCall("1", "everything.trigger-long-running-operation", {"duration": 0.5, "steps": 5})
        return await everything.call(wanted, progress=lambda *said: told.append(said))

    assert asyncio.run(main()).error is None
    assert len(told) >= 4


def test_it_sees_none_of_our_environment(everything, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not for servers")
    seen = call(everything, "everything.get-env").data
    assert "not for servers" not in str(seen)
    assert "PATH" in str(seen)
