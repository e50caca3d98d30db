"""A curl command's credentials become secrets: under names that are free, and never over somebody else's."""

from onetool.app.curl_import import read_curl, secrets_stored
from onetool.services.secrets import Secrets

COMMAND = "curl -H 'Authorization: Bearer very-hidden-value-123' https://api.example.com/v1"
HOSTS = ("api.other.example",)


def read(known, **more):
    return read_curl(COMMAND, "look", None, known, **more)


def test_a_secret_that_is_for_some_hosts_has_its_name_and_is_left_alone(tmp_path):
    known = Secrets({"EXAMPLE_TOKEN": "of-somebody-else"}, hosts={"EXAMPLE_TOKEN": HOSTS}, file=tmp_path / "s.yaml")
    found = read(known, reuse=False)
    assert list(found.secrets) == ["EXAMPLE_TOKEN_2"]
    with secrets_stored(known, found.secrets) as names:
        assert names == ["EXAMPLE_TOKEN_2"]


def test_a_secret_for_some_hosts_with_the_same_value_is_used(tmp_path):
    file = tmp_path / "s.yaml"
    known = Secrets({"EXAMPLE_TOKEN": "very-hidden-value-123"}, hosts={"EXAMPLE_TOKEN": HOSTS}, file=file)
    found = read(known)
    assert list(found.secrets) == ["EXAMPLE_TOKEN"]
    with secrets_stored(known, found.secrets) as names:
        assert names == []
    assert not file.exists(), "no copy that is for any host"
