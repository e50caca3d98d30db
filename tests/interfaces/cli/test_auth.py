"""`onetool auth`: kept without echo, listed without values, out of reach of others."""

import json
import os
import pty
import stat
import subprocess

import pytest
from helpers import cli, invoke, start, trusted

from onetool.core.model_providers import PROVIDERS
from onetool.core.state_folders import IGNORED

KEY = "sk-live-0123456789"


def listed(folder, **env):
    done = (cli if env else invoke)("auth", "list", cwd=folder, env=env)
    assert KEY not in done.stdout + done.stderr
    return {row["name"]: row["source"] for row in json.loads(done.stdout)}


NAMES = {**{name: f"{name.upper()}_API_KEY" for name in PROVIDERS}, "BRAVE_API_KEY": "BRAVE_API_KEY"}


def test_set_list_remove(tmp_path, own_home):
    file = own_home / ".onetool" / "secrets.yaml"
    for provider in NAMES:
        done = invoke("auth", "set", provider, cwd=tmp_path, stdin=f"{KEY}\n")
        assert done.returncode == 0
        assert KEY not in done.stdout + done.stderr
        assert f"A running server that uses {file} reads it by itself" in done.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.with_name(".gitignore").read_text() == IGNORED
    known = listed(tmp_path)
    assert [known[name] for name in NAMES.values()] == ["file"] * len(NAMES)
    for provider in NAMES:
        assert invoke("auth", "remove", provider, cwd=tmp_path).returncode == 0
    known = listed(tmp_path)
    assert not any(known.get(name) for name in NAMES.values())
    assert invoke("auth", "remove", "openai", cwd=tmp_path).returncode == 1


def test_a_key_is_typed_without_echo(tmp_path, own_home):
    leader, follower = pty.openpty()
    files = {"stdin": follower, "stdout": follower, "stderr": follower}
    process = start("auth", "set", "openai", cwd=tmp_path, start_new_session=True, **files)
    os.close(follower)
    shown = b""
    while b"OPENAI_API_KEY:" not in shown:
        shown += os.read(leader, 1024)
    os.write(leader, f"{KEY}\n".encode())
    while True:
        try:
            shown += os.read(leader, 1024)
        except OSError:
            break
    os.close(leader)
    assert process.wait(20) == 0
    assert KEY.encode() not in shown
    assert KEY in (own_home / ".onetool" / "secrets.yaml").read_text()


def test_what_a_person_wrote_in_the_file_stays(tmp_path, own_home):
    file = own_home / ".onetool" / "secrets.yaml"
    file.parent.mkdir()
    file.write_text("# mine\nBRAVE_API_KEY: 'b' # for search\nOPENAI_API_KEY: old\n")
    file.chmod(0o600)
    invoke("auth", "set", "openai", cwd=tmp_path, stdin='with "quotes" and: colon')
    assert file.read_text() == (
        '# mine\nBRAVE_API_KEY: \'b\' # for search\nOPENAI_API_KEY: "with \\"quotes\\" and: colon"\n'
    )
    invoke("auth", "remove", "openai", cwd=tmp_path)
    assert file.read_text() == "# mine\nBRAVE_API_KEY: 'b' # for search\n"


def test_it_goes_beside_the_config_in_force(tmp_path):
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "onetool.yaml").write_text("http: {token: '${MY_TOKEN}'}\n")
    trusted(tmp_path)
    assert invoke("tools", "list", cwd=tmp_path).returncode == 2  # the secret is missing
    done = invoke("auth", "set", "MY_TOKEN", cwd=tmp_path, stdin=KEY)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".onetool" / "secrets.yaml").exists()
    assert invoke("tools", "list", cwd=tmp_path).returncode == 0


def test_where_a_secret_comes_from(tmp_path):
    assert listed(tmp_path, OPENAI_API_KEY=KEY)["OPENAI_API_KEY"] == "environment"
    (tmp_path / "onetool.yaml").write_text(f"secrets: {{OPENAI_API_KEY: {KEY}}}\n")
    assert listed(tmp_path, ONETOOL_CONFIG=str(tmp_path / "onetool.yaml"))["OPENAI_API_KEY"] == "config"
    done = invoke("auth", "set", "openai", "--config", "onetool.yaml", cwd=tmp_path, stdin=KEY)
    assert (done.returncode, "Move them to a file" in done.stderr) == (1, True)


@pytest.mark.parametrize("value", ["", "\n", "   ", "two\nlines", "bell\a"])
def test_what_is_no_key_is_not_kept(tmp_path, own_home, value):
    assert invoke("auth", "set", "openai", cwd=tmp_path, stdin=value).returncode == 1
    assert not (own_home / ".onetool" / "secrets.yaml").exists()


def test_a_name_that_is_none(tmp_path):
    done = invoke("auth", "set", "not a name", cwd=tmp_path, stdin=KEY)
    assert (done.returncode, "openai" in done.stderr) == (2, True)
    assert invoke("auth", "set", "not a name", "--secret", cwd=tmp_path, stdin=KEY).returncode == 2


def test_a_file_that_others_can_read_is_refused(tmp_path, own_home):
    invoke("auth", "set", "openai", cwd=tmp_path, stdin=KEY)
    file = own_home / ".onetool" / "secrets.yaml"
    file.chmod(0o644)
    done = invoke("auth", "list", cwd=tmp_path)
    assert done.returncode == 2
    assert f"chmod 600 {file}" in done.stderr


BACKEND = """
import json
from pathlib import Path
from keyring.backend import KeyringBackend

class InAFile(KeyringBackend):
    priority = 9
    file = Path(__file__).with_name("kept.json")
    def _all(self): return json.loads(self.file.read_text()) if self.file.exists() else {}
    def get_password(self, service, name): return self._all().get(f"{service}/{name}")
    def set_password(self, service, name, value):
        self.file.write_text(json.dumps(self._all() | {f"{service}/{name}": value}))
    def delete_password(self, service, name):
        kept = self._all(); del kept[f"{service}/{name}"]; self.file.write_text(json.dumps(kept))
"""


def test_the_systems_keyring(tmp_path):
    """The real keyring library, with a backend that keeps to this test's folder."""
    (tmp_path / "backend_for_test.py").write_text(BACKEND)
    env = {"PYTHONPATH": str(tmp_path), "PYTHON_KEYRING_BACKEND": "backend_for_test.InAFile"}
    assert cli("auth", "set", "openai", "--keyring", cwd=tmp_path, stdin=KEY, env=env).returncode == 0
    assert listed(tmp_path, **env)["OPENAI_API_KEY"] == "keyring"
    assert KEY in (tmp_path / "kept.json").read_text()
    assert cli("auth", "remove", "openai", cwd=tmp_path, env=env).returncode == 0
    assert listed(tmp_path, **env)["OPENAI_API_KEY"] is None


def test_a_keyring_that_does_not_work_is_none(tmp_path):
    env = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    assert listed(tmp_path, **env)["OPENAI_API_KEY"] is None


def test_many_at_once_lose_nothing(tmp_path, own_home):
    processes = [
        start("auth", "set", f"KEY_{n}", cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for n in range(8)
    ]
    for process in processes:
        process.stdin.write(KEY)
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 8
    assert {f"KEY_{n}" for n in range(8)} <= set(listed(tmp_path))


@pytest.mark.parametrize(
    "text", ['{OLD: "x"}\n', '---\nA: "a"\n...\n', "OPENAI_API_KEY:\n\n  old\n", "OPENAI_API_KEY: |\n  old\n"]
)
def test_a_file_that_cannot_be_changed_by_lines_stays_as_it_is(tmp_path, own_home, text):
    file = own_home / ".onetool" / "secrets.yaml"
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    done = invoke("auth", "set", "openai", cwd=tmp_path, stdin=KEY)
    assert (done.returncode, "by hand" in done.stderr) == (1, True)
    assert file.read_text() == text
    assert list(file.parent.glob(".secrets.yaml.[0-9]*")) == []


@pytest.mark.parametrize("name", ["null", "true"])
def test_names_that_yaml_reads_otherwise(tmp_path, own_home, name):
    assert invoke("auth", "set", name, "--secret", cwd=tmp_path, stdin=KEY).returncode == 1
    assert invoke("tools", "list", cwd=tmp_path).returncode == 0


def test_the_file_that_the_config_names_is_made(tmp_path):
    (tmp_path / "onetool.yaml").write_text("secrets: mine.yaml\n")
    assert invoke("auth", "set", "openai", "--config", "onetool.yaml", cwd=tmp_path, stdin=KEY).returncode == 0
    assert KEY in (tmp_path / "mine.yaml").read_text()


def test_a_linked_file_stays_a_link(tmp_path, own_home):
    real = tmp_path / "real.yaml"
    real.touch(0o600)
    link = own_home / ".onetool" / "secrets.yaml"
    link.parent.mkdir()
    link.symlink_to(real)
    assert invoke("auth", "set", "openai", cwd=tmp_path, stdin=KEY).returncode == 0
    assert link.is_symlink()
    assert KEY in real.read_text()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("opnai", "did you mean openai?"),
        ("acme", f"({', '.join(PROVIDERS)})."),
        ("Acme", "auth set Acme --secret"),
    ],
)
def test_an_unknown_provider_is_not_stored_as_another_secret(tmp_path, own_home, name, told):
    done = invoke("auth", "set", name, cwd=tmp_path, stdin=KEY)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert not (own_home / ".onetool" / "secrets.yaml").exists()


@pytest.mark.parametrize(
    ("name", "option"), [("acme", "--secret"), ("acme", "--host=acme.example"), ("openai", "--secret")]
)
def test_a_secret_may_have_any_name_on_purpose(tmp_path, name, option):
    assert invoke("auth", "set", name, option, cwd=tmp_path, stdin=KEY).returncode == 0
    assert listed(tmp_path)[name] == "file"
    if name == "acme":
        assert invoke("auth", "set", name, cwd=tmp_path, stdin=KEY[::-1]).returncode == 0  # another value
        assert invoke("auth", "remove", name, cwd=tmp_path).returncode == 0


def test_a_secret_that_the_config_uses_may_have_any_name(tmp_path):
    (tmp_path / "onetool.yaml").write_text("include: [more.yaml]\n")
    (tmp_path / "more.yaml").write_text("http: {token: '${acme}'}\n")
    done = invoke("auth", "set", "acme", "--config", "onetool.yaml", cwd=tmp_path, stdin=KEY)
    assert done.returncode == 0, done.stderr
    assert invoke("auth", "set", "acm", "--config", "onetool.yaml", cwd=tmp_path, stdin=KEY).returncode == 2


def test_a_keyring_that_refuses_is_told(tmp_path):
    env = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    done = invoke("auth", "set", "openai", "--keyring", cwd=tmp_path, stdin=KEY, env=env)
    assert (done.returncode, "Leave out --keyring" in done.stderr) == (1, True)


def test_a_secret_for_some_hosts(tmp_path, own_home):
    done = invoke("auth", "set", "KEY", "--host", "api.example.com", "--host", "*.example.org", cwd=tmp_path, stdin=KEY)
    assert done.returncode == 0, done.stderr
    file = own_home / ".onetool" / "secrets.yaml"
    bound = 'KEY: {"value": "%s", "hosts": ["api.example.com", "*.example.org"]}\n'
    assert file.read_text() == bound % KEY
    assert listed(tmp_path)["KEY"] == "file"
    # Another value for the same hosts.
    assert invoke("auth", "set", "KEY", cwd=tmp_path, stdin=KEY[::-1]).returncode == 0
    assert file.read_text() == bound % KEY[::-1]
    assert invoke("auth", "set", "KEY", "--host", "https://x/", cwd=tmp_path, stdin=KEY).returncode == 2
    assert invoke("auth", "remove", "KEY", cwd=tmp_path).returncode == 0
    assert file.read_text() == ""


@pytest.mark.attack("secrets")
def test_a_secret_is_bound_without_typing_it_again(tmp_path, own_home):
    assert invoke("auth", "set", "KEY", cwd=tmp_path, stdin=KEY).returncode == 0
    done = invoke("auth", "set", "KEY", "--host", "http://localhost:9000", cwd=tmp_path, stdin="")
    assert (done.returncode, "is sent to http://localhost:9000 only" in done.stderr) == (0, True), done.stderr
    file = own_home / ".onetool" / "secrets.yaml"
    assert file.read_text() == f'KEY: {{"value": "{KEY}", "hosts": ["http://localhost:9000"]}}\n'
    rows = json.loads(invoke("auth", "list", "--json", cwd=tmp_path).stdout)
    assert [row["hosts"] for row in rows if row["name"] == "KEY"] == [["http://localhost:9000"]]
    assert [row["hosts"] for row in rows if row["name"] == "OPENAI_API_KEY"] == [[]]
    assert invoke("auth", "set", "KEY", cwd=tmp_path, stdin="").returncode == 1
    done = invoke("auth", "set", "NEW", "--host", "a.example", cwd=tmp_path, stdin="")
    assert (done.returncode, "NEW is not stored yet" in done.stderr) == (1, True), done.stderr
    done = invoke("auth", "set", "KEY", "--host", "localhost:9000", cwd=tmp_path, stdin="")
    assert "is sent to https://localhost:9000 only" in done.stderr


@pytest.mark.parametrize("host", ["*", "http://*", "https://", "http://a/b", "ftp://a.example", "a.example:0", "a b"])
def test_what_is_no_host_is_refused(tmp_path, own_home, host):
    assert invoke("auth", "set", "KEY", "--host", host, cwd=tmp_path, stdin=KEY).returncode == 2
    assert not (own_home / ".onetool" / "secrets.yaml").exists()


@pytest.mark.parametrize("host", ["https://api.example.com/path", "api.example.com/", ""])
def test_how_a_host_is_written_is_told(tmp_path, host):
    done = invoke("auth", "set", "KEY", "--host", host, cwd=tmp_path, stdin=KEY)
    assert (done.returncode, "without a path" in done.stderr) == (2, True), done.stderr
    assert "neither https://" not in done.stderr
