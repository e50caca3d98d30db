"""`${file:/run/secrets/x}`: where it is read, what is refused, and that its value is never shown."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onetool.config import Config
from onetool.config.edit import put_servers, switch_server
from onetool.config.load import setting_files
from onetool.config.pin import FILE_REFUSED
from onetool.config.read import ConfigFileError
from onetool.core.errors import Mistake
from onetool.services.secret_file import put_secret
from onetool.services.secrets import MAX_LENGTH

Load = Callable[..., Config]
OneMistake = Callable[..., Mistake]
VALUE = "open-sesame-4711"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A file as Docker mounts it: everybody may read it."""
    file = tmp_path / "mounted"
    file.write_text(f"{VALUE}\n")
    file.chmod(0o444)
    return file


def test_it_is_read_in_values_of_the_config(load: Load, mounted: Path) -> None:
    config = load(
        f"""
database: postgresql://onetool:${{file:{mounted}}}@db/onetool
cluster: {{key: ${{file:{mounted}}}${{file:{mounted}}}}}
http: {{token: ${{file:{mounted}}}}}
servers: {{a: {{url: "https://a.example/mcp", headers: {{Authorization: Bearer ${{file:{mounted}}}}}}}}}
"""
    )
    assert str(config.database) == f"postgresql://onetool:{VALUE}@db/onetool"
    assert config.cluster is not None
    assert config.cluster.keys == [(VALUE * 2).encode()]
    assert str(config.http.token) == VALUE
    assert config.servers["a"].headers == {"Authorization": f"Bearer {VALUE}"}
    assert VALUE not in repr(config.http)
    assert VALUE not in config.secrets.redact(f"it is {VALUE}")


def test_it_is_read_in_the_secrets_file_and_bound_to_hosts(
    load: Load, write: Callable[..., Path], mounted: Path
) -> None:
    write(
        f"A: ${{file:{mounted}}}\nB: {{value: '${{file:{mounted}}}', hosts: [b.example]}}\nC: x${{file:/no}}\n",
        "s.yaml",
    )
    secrets = load("secrets: s.yaml\n").secrets
    assert (secrets.get("A"), secrets.get_stored("B"), secrets.hosts("B")) == (VALUE, VALUE, ("b.example",))
    assert secrets.get("C") == "x${file:/no}"  # only a whole value: others may be a password
    assert VALUE not in secrets.redact(VALUE)


def test_neither_the_environment_nor_a_file_is_read_for_placeholders(load: Load, mounted: Path) -> None:
    mounted.chmod(0o600)
    mounted.write_text("${file:/etc/hostname}")
    config = load(f"settings: {{a: {{b: '${{FROM}}', c: '${{file:{mounted}}}'}}}}\n", {"FROM": f"${{file:{mounted}}}"})
    assert config.settings == {"a": {"b": f"${{file:{mounted}}}", "c": "${file:/etc/hostname}"}}


def test_links_are_followed_and_the_file_is_read_again(load: Load, mounted: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(mounted)
    text = f"http: {{token: ${{file:{link}}}}}\n"
    config = load(text)
    assert link in setting_files(config, finds=False)  # a change of it is a reason to reload
    other = tmp_path / "other"
    other.write_text("another-value")
    link.unlink()
    link.symlink_to(other)
    assert str(load(text).http.token) == "another-value"


def test_it_stays_in_tools_and_snippets(load: Load, mounted: Path) -> None:
    config = load(f"snippets: {{s: {{body: '${{file:{mounted}}}'}}}}\ntools: [{{name: '${{file:{mounted}}}'}}]\n")
    assert config.snippets["s"].body == f"${{file:{mounted}}}" == config.tools[0].definition["name"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"\n", "is empty"),
        (b"x" * (MAX_LENGTH + 1), "is larger than 16 KiB"),
        (b"\xff\xfe1234", "is not UTF-8 text"),
    ],
)
def test_what_a_file_holds_is_checked(content: bytes | None, message: str, mistake: OneMistake, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    found = mistake(f"http: {{token: ${{file:{tmp_path}/f}}}}\n")
    assert (message in found.message, found.key) == (True, "http.token")


def test_places_that_are_refused(mistake: OneMistake, mounted: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    mounted.chmod(0o666)
    for path, message in (
        ("run/x", "not an absolute path"),
        (str(tmp_path), "is not a regular file"),
        (str(tmp_path / "pipe"), "is not a regular file"),
        (str(mounted), "is ignored, because other users can write to it"),
    ):
        assert message in mistake(f"http: {{token: '${{file:{path}}}'}}\n").message


def test_a_server_without_its_file_is_left_out_and_the_key_is_told_late(load: Load) -> None:
    config = load(
        "servers: {a: {command: x, env: {K: '${file:/none/a}'}}}\n"
        "database: postgresql://db/x\ncluster: {key: '${file:/none/key}'}\n"
    )
    assert [one.message for one in config.warnings] == ["can't read the secret /none/a: No such file or directory"]
    assert config.cluster is not None
    assert not config.cluster.has_key
    assert "/none/key" in config.cluster.unset()[0].message


def test_no_import_or_request_writes_one(tmp_path: Path) -> None:
    block = {"command": "x", "env": {"A": "Bearer ${file:/etc/passwd}"}}
    with pytest.raises(ConfigFileError, match="Server a:") as caught:
        put_servers("menu: run\n", {"a": block})
    assert FILE_REFUSED in caught.value.message
    with pytest.raises(ValueError, match="by hand"):
        put_secret(tmp_path / "secrets.yaml", "A", "${file:/etc/passwd}", lambda _: None)
    assert not (tmp_path / "secrets.yaml").exists()


def test_it_does_not_name_the_secrets_file(mistake: OneMistake, mounted: Path) -> None:
    for written in (f"${{file:{mounted}}}", f"folder/${{file:{mounted}}}"):
        found = mistake(f"secrets: {written}\n")
        assert (found.key, found.message) == ("secrets", "${file:…} can't name the secrets file")


def test_a_block_with_one_can_be_switched(mounted: Path) -> None:
    text = f"servers:\n  a: {{command: x, env: {{K: ${{file:{mounted}}}}}}}\n  b: {{command: y}}\n"
    assert f"${{file:{mounted}}}" in switch_server(text, "b", on=False)
