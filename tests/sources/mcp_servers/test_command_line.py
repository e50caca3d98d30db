"""A server is named after the package that its command starts."""

import pytest
from helpers import each

from onetool.core.errors import ConfigError
from onetool.sources.mcp_servers.command_line import package_name, server_of


@each(
    ("command", "name"),
    [
        ("uvx mcp-server-time", "mcp_server_time"),
        ("uvx mcp-server-time@latest --local-timezone UTC", "mcp_server_time"),
        ("uvx mcp-server-time==1.2", "mcp_server_time"),
        ("uvx --from git+https://github.com/x/tools y-server", "y_server"),
        ("uvx --python 3.12 --with httpx mcp-server-git[all]", "mcp_server_git"),
        ("uv tool run mcp-server-fetch", "mcp_server_fetch"),
        ("uv run --directory /srv/weather weather-mcp", "weather_mcp"),
        ("uv run python -m weather.server", "weather_server"),
        ("uv run -m weather", "weather"),
        ("uv --directory /srv/tools run weather.py", "weather"),
        ("pipx run mcp-server-time", "mcp_server_time"),
        ("npx -y @modelcontextprotocol/server-everything@1.2", "server_everything"),
        ("npx -y server-everything", "server_everything"),
        ("npx -p @scope/pkg@2 a-command", "a_command"),
        ("npm exec -- @scope/pkg", "pkg"),
        ("bunx @scope/pkg@next", "pkg"),
        ("cmd /c npx -y @scope/pkg", "pkg"),
        ("/usr/local/bin/npx -y @scope/pkg", "pkg"),
        ("python -m mcp_server_time", "mcp_server_time"),
        ("python3.12 -u -m pkg.__main__", "pkg"),
        ("python weather.py", "weather"),
        ("/opt/venv/bin/python -u tools/weather/server.py", "weather"),
        ("node path/server.js", "path"),
        ("node server.js", "server"),
        ("node /srv/weather/build/index.js --port 1", "weather"),
        ("docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:v1", "github_mcp_server"),
        ("docker run --rm -i --env=A=b -v /a:/b mcp/time@sha256:0123", "time"),
        ("docker run -i localhost:5000/some/image", "image"),
        ("env TZ=UTC uvx mcp-server-time", "mcp_server_time"),
        ("mcp-server-time", "mcp_server_time"),
        ("./bin/weather-server", "weather_server"),
        ("npx", "npx"),
        ("uvx 7zip-server", "mcp_7zip_server"),
        ("uvx ---", "uvx"),
    ],
)
def test_names(command, name):
    assert package_name(command.split()) == name


def test_the_command_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((name, server),) = server_of(["env", "API_KEY=sesame-0123", "python3", "-c", "print('${HOME}')"]).items()
    assert (name, server.command, server.args) == ("python3", "python3", ("-c", "print('${HOME}')"))
    assert (server.env, server.cwd, server.project) == ({"API_KEY": "sesame-0123"}, tmp_path, None)
    assert "sesame" not in server.target
    assert [*server_of(["python3"], "mine")] == ["mine"]


@each(
    ("words", "name", "said"),
    [
        ([], None, "no command after --"),
        (["env", "A=b"], None, "no command after --"),
        (["no-such-program-at-all"], None, "no program 'no-such-program-at-all'"),
        (["./no-such-file"], None, "no program './no-such-file'"),
        (["python3"], "a.b", "Invalid name of a server: 'a.b'"),
        (["python3"], "", "Invalid name of a server: ''"),
    ],
)
def test_what_can_not_be_started_is_told(words, name, said):
    with pytest.raises(ConfigError, match=said):
        server_of(words, name)
