"""The commands of `onetool bundles` in this process: what they do is looked at, not what a process is."""

import io
import json

import pytest
from click.testing import CliRunner

from onetool.interfaces.cli.bundles import bundles as group

FORECAST = {
    "type": "http",
    "description": "The forecast of a city",
    "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "httpImpl": {
        "request": {
            "urlTemplate": "https://api.example.com/v1/${city}",
            "auth": {"type": "bearer", "value": "${WEATHER_TOKEN}"},
        }
    },
    "limits": {"maxCallsPerMinute": 60},
}
ECHO = {
    "type": "python",
    "argSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "pythonImpl": {"func": "tools.echo"},
}


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forecast.json").write_text(json.dumps(FORECAST))
    (tmp_path / "echo.json").write_text(json.dumps(ECHO))
    return tmp_path


def run(*args, stdin=None):
    return CliRunner().invoke(group, [str(arg) for arg in args], input=stdin)


def did(*args, stdin=None):
    """What a command that must succeed prints, as data."""
    done = run(*args, stdin=stdin)
    assert done.exit_code == 0, (args, done.output, done.exception)
    return json.loads(done.stdout)


def refused(*args, stdin=None, code=1):
    """Why a command was refused, whichever way."""
    done = run(*args, stdin=stdin)
    assert done.exit_code == code, (args, done.output)
    return f"{done.stderr}{done.exception}"


def seen(monkeypatch, *args, code=0):
    """What a person at a terminal sees of it."""
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setattr("onetool.interfaces.cli.output.stdout", lambda: screen)
        done = run(*args)
    assert done.exit_code == code, (args, done.output, done.exception)
    return screen.getvalue() + done.stderr
