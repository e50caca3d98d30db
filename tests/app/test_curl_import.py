"""A curl command's credentials become secrets: under names that are free, and never over somebody else's."""

import pytest

from onetool.app.bundle_import import SecretsNotKeptError, read_curl, secrets_stored
from onetool.services.secrets import Secrets

COMMAND = "curl -H 'Authorization: Bearer very-hidden-value-123' https://api.example.com/v1"
HOSTS = ("api.other.example",)


def read(known, **more):
    return read_curl(COMMAND, "look", None, known, **more)


def test_a_secret_that_is_for_some_hosts_has_its_name_and_is_left_alone(tmp_path):
    known = Secrets({"EXAMPLE_TOKEN": "of-somebody-else"}, hosts={"EXAMPLE_TOKEN": HOSTS}, file=tmp_path / "s.yaml")
    found = read(known, reuse=False)
    assert list(found.secrets) == ["EXAMPLE_TOKEN_2"]
    with secrets_stored(known, found.secrets, found.host) as names:
        assert names == ["EXAMPLE_TOKEN_2"]


@pytest.mark.parametrize("hosts", [(), ("api.example.com",), ("*.example.com",)])
def test_a_secret_with_the_same_value_is_used_where_it_may_go_there(tmp_path, hosts):
    file = tmp_path / "s.yaml"
    known = Secrets({"EXAMPLE_TOKEN": "very-hidden-value-123"}, hosts={"EXAMPLE_TOKEN": hosts}, file=file)
    found = read(known)
    assert list(found.secrets) == ["EXAMPLE_TOKEN"]
    with secrets_stored(known, found.secrets, found.host) as names:
        assert names == []
    assert not file.exists()


@pytest.mark.parametrize("host", ["api.other.example", "http://api.example.com", "api.example.com:8443"])
def test_a_secret_with_the_same_value_for_another_host_is_stored_again_for_this_one(tmp_path, host):
    file = tmp_path / "s.yaml"
    known = Secrets({"EXAMPLE_TOKEN": "very-hidden-value-123"}, hosts={"EXAMPLE_TOKEN": (host,)}, file=file)
    found = read(known)
    with secrets_stored(known, found.secrets, found.host) as names:
        assert names == ["EXAMPLE_TOKEN_2"]
    assert file.read_text() == 'EXAMPLE_TOKEN_2: {"value": "very-hidden-value-123", "hosts": ["api.example.com"]}\n'


def test_a_name_that_another_process_has_taken_is_not_free(tmp_path):
    known = Secrets(file=tmp_path / "s.yaml")
    known.file.write_text("EXAMPLE_TOKEN: theirs\nEXAMPLE_TOKEN_2: |\n  theirs, too\n")
    assert list(read(known, reuse=False).secrets) == ["EXAMPLE_TOKEN_3"]


def test_a_name_that_was_taken_meanwhile_is_neither_replaced_nor_removed(tmp_path):
    known = Secrets(file=tmp_path / "s.yaml")
    found = read(known)
    assert list(found.secrets) == ["EXAMPLE_TOKEN"]
    known.file.write_text("EXAMPLE_TOKEN: theirs\n")
    first = {"ANOTHER": "hidden-value-1"}
    with pytest.raises(SecretsNotKeptError, match="EXAMPLE_TOKEN already exists"):
        secrets_stored(known, first | found.secrets, found.host).__enter__()
    assert known.file.read_text() == "EXAMPLE_TOKEN: theirs\n"
    with secrets_stored(known, read(known).secrets, found.host) as names:
        assert names == ["EXAMPLE_TOKEN_2"]
