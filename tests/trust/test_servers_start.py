"""Where servers are started: in the folder of who names them, never in the one that somebody happens to stand in."""

import json
import sys

import pytest
from helpers import trusted

from onetool.app import App
from onetool.config import load_config
from onetool.config.find import find

MODULE = "from pathlib import Path\nPath({!r}).write_text('started')\n"


def own_config(home, **keys):
    (home / ".onetool").mkdir(mode=0o700, exist_ok=True)
    file = home / ".onetool" / "onetool.yaml"
    file.write_text(json.dumps(keys))
    return file


@pytest.mark.long
def test_a_module_of_a_strangers_folder_is_not_the_persons_server(tmp_path, own_home, monkeypatch):
    own_config(own_home, servers={"clock": {"command": sys.executable, "args": ["-m", "mcp_server_time"]}})
    flag = tmp_path / "flag"
    (tmp_path / "mcp_server_time").mkdir()
    (tmp_path / "mcp_server_time" / "__main__.py").write_text(MODULE.format(str(flag)))
    (tmp_path / "mcp_server_time" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    with App.open() as app:
        app.catalog.wait_for_servers_sync()
        assert "clock.get_current_time" in app.catalog.registry.names()
    assert not flag.exists()


def started_in(found):
    return load_config(found).servers["s"].cwd


def test_they_start_in_the_folder_of_their_config(tmp_path, own_home, monkeypatch):
    servers = {"s": {"command": "./bin/server"}}
    file = own_config(own_home, servers=servers)
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    assert started_in(find(cwd=below)) == own_home
    assert started_in(find(file, cwd=below)) == own_home  # by whatever way
    project = own_config(below.parent, servers=servers)
    trusted(below.parent)
    assert started_in(find(cwd=below)) == below.parent
    named = tmp_path / "other.yaml"
    named.write_text(project.read_text())
    monkeypatch.chdir(below)
    assert started_in(find("../../other.yaml")).resolve() == tmp_path


@pytest.mark.parametrize(("said", "meant"), [("../below", "below"), ("/tmp", "/tmp")])
def test_the_block_may_say_otherwise(said, meant, tmp_path):
    file = own_config(tmp_path, servers={"s": {"command": "true", "cwd": said}})
    assert started_in(find(file)).resolve() == (tmp_path / meant).resolve()


def test_what_is_dialled_has_no_folder(tmp_path):
    assert started_in(find(own_config(tmp_path, servers={"s": {"url": "http://127.0.0.1:9/mcp"}}))) is None
