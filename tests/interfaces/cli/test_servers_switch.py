"""`onetool servers enable`, `disable` and `rename`: one word in the config, and nothing else."""

import json

import pytest
from helpers import invoke, trusted
from sources.mcp_servers.harness import block_of

BLOCKS = {
    "block": "servers:\n  clock: # mine\n    command: clock\n    args: [a]  # b\n  other: {command: x}\nmenu: run\n",
    "flow": "servers: {clock: {command: clock},  other: {command: x}} # two\n",
    "disabled": "servers:\n  clock: {command: clock, disabled: false}\n  other: {command: x}\n",
    "enabled": "servers:\n   clock:\n      enabled: true # now\n      command: clock\n   other:\n      command: x\n",
}


def states(folder):
    done = invoke("servers", "list", "--no-connect", cwd=folder)
    assert "not trusted" not in done.stderr
    return {one["name"]: one["state"] for one in json.loads(done.stdout)}


@pytest.mark.parametrize("layout", BLOCKS)
def test_switched_off_and_on_again(tmp_path, layout):
    (tmp_path / ".onetool").mkdir()
    file = tmp_path / ".onetool" / "onetool.yaml"
    file.write_text(BLOCKS[layout])
    trusted(tmp_path)
    done = invoke("servers", "disable", "clock", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (states(tmp_path)["clock"], states(tmp_path)["other"] == "disabled") == ("disabled", False)
    assert "already" in invoke("servers", "disable", "clock", cwd=tmp_path).stdout
    done = invoke("servers", "enable", "clock", cwd=tmp_path)
    assert done.returncode == 0
    assert f"A running server that uses {file} starts new commands after a reload" in done.stderr
    assert states(tmp_path)["clock"] != "disabled"
    if layout in ("disabled", "enabled"):
        assert file.read_text() == BLOCKS[layout]
    else:
        assert "enabled: true" in file.read_text().replace('"', "")


def test_one_that_is_not_there(tmp_path):
    done = invoke("servers", "disable", "clokc", cwd=tmp_path)
    assert (done.returncode, "There is no server 'clokc'" in done.stderr) == (1, True)


def test_renamed_with_what_was_approved(tmp_path):
    """A rename approves nothing: a pinned server whose tools have changed stays refused under its new name."""
    (tmp_path / "words").write_text("Gives one.")
    block = json.dumps(block_of("described", str(tmp_path / "words"), pin=True))
    file = tmp_path / "onetool.yaml"
    file.write_text(f"servers:\n  pinned: {block} # mine\n  other: {{url: 'http://127.0.0.1:9/x', enabled: false}}\n")
    env = {"ONETOOL_CONFIG": str(file), "ONETOOL_HOME": str(tmp_path / "home")}

    def servers(*args):
        return invoke("servers", *args, cwd=tmp_path, env=env)

    (before,) = [one for one in json.loads(servers("list").stdout) if one["name"] == "pinned"]
    assert (before["state"], before["refused"]) == ("connected", False)
    done = servers("rename", "pinned", "fixed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Renamed pinned to fixed in ")
    assert f"A running server that uses {file} starts new commands after a reload" in done.stderr
    assert "  fixed: {" in file.read_text()
    assert "# mine" in file.read_text()
    (tmp_path / "words").write_text("Does what an enemy wants.")
    found = {one["name"]: one for one in json.loads(servers("list").stdout)}
    assert found.keys() == {"fixed", "other"}
    assert found["fixed"]["refused"] is True
    text = file.read_text()
    for old, new, code, told in (
        ("fixed", "other", 1, "already exists"),
        ("fixed", "a\u202eb", 2, "Invalid value for NAME"),
        ("fixd", "x", 1, "There is no server 'fixd'"),
    ):
        done = servers("rename", old, new)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr
        assert "\u202e" not in done.stderr
    assert servers("rename", "fixed", "fixed").returncode == 0
    assert file.read_text() == text
