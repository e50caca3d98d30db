"""`onetool servers enable` and `disable`: one word in the config, and nothing else."""

import json

import pytest
from helpers import cli, trusted

BLOCKS = {
    "block": "servers:\n  clock: # mine\n    command: clock\n    args: [a]  # b\n  other: {command: x}\nmenu: run\n",
    "flow": "servers: {clock: {command: clock},  other: {command: x}} # two\n",
    "disabled": "servers:\n  clock: {command: clock, disabled: false}\n  other: {command: x}\n",
    "enabled": "servers:\n   clock:\n      enabled: true # now\n      command: clock\n   other:\n      command: x\n",
}


def states(folder):
    done = cli("servers", "list", "--no-connect", cwd=folder)
    assert "not trusted" not in done.stderr
    return {one["name"]: one["state"] for one in json.loads(done.stdout)}


@pytest.mark.parametrize("layout", BLOCKS)
def test_switched_off_and_on_again(tmp_path, layout):
    (tmp_path / ".onetool").mkdir()
    file = tmp_path / ".onetool" / "onetool.yaml"
    file.write_text(BLOCKS[layout])
    trusted(tmp_path)
    done = cli("servers", "disable", "clock", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (states(tmp_path)["clock"], states(tmp_path)["other"] == "disabled") == ("disabled", False)
    assert "already" in cli("servers", "disable", "clock", cwd=tmp_path).stdout
    done = cli("servers", "enable", "clock", cwd=tmp_path)
    assert done.returncode == 0
    assert f"A running server that uses {file} starts it after a reload" in done.stderr
    assert states(tmp_path)["clock"] != "disabled"
    if layout in ("disabled", "enabled"):
        assert file.read_text() == BLOCKS[layout]
    else:
        assert "enabled: true" in file.read_text().replace('"', "")


def test_one_that_is_not_there(tmp_path):
    done = cli("servers", "disable", "clokc", cwd=tmp_path)
    assert (done.returncode, "There is no server clokc" in done.stderr) == (1, True)
