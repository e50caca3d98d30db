"""`onetool hosts …` and `--allow` of what comes in: the config gets an entry, and keeps every other byte."""

import json

import pytest
from helpers import invoke, trusted

LAYOUTS = {
    "": "",
    "nothing": "# mine\nmenu: run # one\n",
    "empty": "allowedHosts:\nmenu: run\n",
    "brackets": "allowedHosts: []\r\nmenu: run\r\n",
    "flow": "allowedHosts: [a.example, 'b.example'] # two\nmenu:   run\n",
    "block": "allowedHosts:\n# first\n- a.example\n- b.example # second\n\n# of all\nmenu: run\n",
    "deep": "menu: run\nallowedHosts:\n    - {host: a.example}\n    - b.example",
}


def project(folder, text="{}\n"):
    (folder / ".onetool").mkdir()
    (folder / ".onetool" / "onetool.yaml").write_bytes(text.encode())
    trusted(folder)
    return folder / ".onetool" / "onetool.yaml"


def listed(folder):
    return [one["host"] for one in json.loads(invoke("hosts", "list", cwd=folder).stdout)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_allowed_and_removed_again_in_any_layout(tmp_path, layout):
    file = project(tmp_path, LAYOUTS[layout])
    before = listed(tmp_path)
    done = invoke("hosts", "allow", "api.example.com", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert listed(tmp_path) == [*before, "api.example.com"]
    added = file.read_bytes().decode()
    for line in LAYOUTS[layout].splitlines():
        assert line in added or line.startswith("allowedHosts") or "b.example" in line
    done = invoke("hosts", "remove", "API.example.com", cwd=tmp_path)
    assert (done.returncode, listed(tmp_path)) == (0, before), done.stderr
    if layout not in ("", "nothing", "empty"):
        assert file.read_bytes().decode().rstrip("\n") == LAYOUTS[layout].rstrip("\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_list_over_several_lines_in_brackets_is_left_to_the_person(tmp_path, newline):
    text = newline.join(["allowedHosts: [", "    a.example,", "    b.example, # second", "  ]", "menu:   run"])
    file = project(tmp_path, text)
    for command in (["allow", "api.example.com"], ["remove", "a.example"]):
        done = invoke("hosts", *command, cwd=tmp_path)
        assert (done.returncode, "edit it by hand" in done.stderr) == (1, True)
        assert file.read_bytes().decode() == text


def test_a_folder_that_was_trusted_still_is(tmp_path):
    project(tmp_path)
    assert invoke("hosts", "allow", "api.example.com", cwd=tmp_path).returncode == 0
    assert "not trusted" not in (told := invoke("hosts", "list", cwd=tmp_path)).stderr
    assert json.loads(told.stdout) == [{"host": "api.example.com", "allowPrivate": False}]


def test_what_is_near_is_allowed_with_its_private_addresses(tmp_path):
    project(tmp_path)
    invoke("hosts", "allow", "localhost:9000", "https://api.example.com/v1/x", "wiki.example", cwd=tmp_path)
    assert invoke("hosts", "allow", "--private", "wiki.example", cwd=tmp_path).returncode == 0
    assert json.loads(invoke("hosts", "list", cwd=tmp_path).stdout) == [
        {"host": "localhost:9000", "allowPrivate": True},
        {"host": "api.example.com", "allowPrivate": False},
        {"host": "wiki.example", "allowPrivate": True},
    ]
    assert "already" in invoke("hosts", "allow", "wiki.example", cwd=tmp_path).stdout


def test_without_a_config_it_is_the_persons_own(tmp_path, own_home):
    done = invoke("hosts", "allow", "api.example.com", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "api.example.com" in (own_home / ".onetool" / "onetool.yaml").read_text()
    assert listed(tmp_path) == ["api.example.com"]


def test_what_is_no_host_and_what_is_not_there(tmp_path):
    file = project(tmp_path)
    assert invoke("hosts", "allow", "no host", cwd=tmp_path).returncode == 2
    assert invoke("hosts", "allow", "ftp://x.example", cwd=tmp_path).returncode == 2
    gone = invoke("hosts", "remove", "x.example", cwd=tmp_path)
    assert (gone.returncode, "not among the allowed hosts" in gone.stderr) == (1, True)
    assert file.read_text() == "{}\n"


def test_one_that_stands_in_an_included_file_is_told(tmp_path):
    file = project(tmp_path)
    file.write_text("include: [more.yaml]\n")
    file.with_name("more.yaml").write_text("allowedHosts: [a.example]\n")
    trusted(tmp_path)
    done = invoke("hosts", "remove", "a.example", cwd=tmp_path)
    assert (done.returncode, "includes" in done.stderr) == (1, True)


def test_an_untrusted_folder_is_not_written_to(tmp_path):
    (tmp_path / ".onetool").mkdir()
    file = tmp_path / ".onetool" / "onetool.yaml"
    file.write_text("menu: run\n")
    assert invoke("hosts", "allow", "a.example", cwd=tmp_path).returncode == 1
    assert file.read_text() == "menu: run\n"


def test_what_comes_in_has_its_hosts_allowed_where_that_is_said(tmp_path):
    project(tmp_path)
    curl = "curl https://api.example.com/v1/items"
    told = invoke("bundles", "add-curl", "mine/items", curl, "--create", cwd=tmp_path)
    assert "onetool hosts allow api.example.com" in told.stderr
    assert listed(tmp_path) == []
    done = invoke("bundles", "add-curl", "mine/items@2", curl, "--allow", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Allowed api.example.com" in done.stderr
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9999/v1"}],
        "paths": {"/pets": {"get": {"operationId": "pets", "responses": {"200": {"description": "ok"}}}}},
    }
    (tmp_path / "pets.json").write_text(json.dumps(document))
    dry = invoke("bundles", "import", "pets.json", "--allow", "--dry-run", cwd=tmp_path)
    assert (dry.returncode, listed(tmp_path)) == (0, ["api.example.com"])
    done = invoke("bundles", "import", "pets.json", "--allow", cwd=tmp_path)
    assert json.loads(done.stdout)["needs"]["hosts"][0]["allowed"] is True
    assert json.loads(invoke("hosts", "list", cwd=tmp_path).stdout)[1] == {
        "host": "127.0.0.1:9999",
        "allowPrivate": True,
    }
