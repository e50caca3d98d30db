"""A caller gets back what it sent itself, also where that is a secret: a mask would tell it that a guess is right.

What a tool adds is masked, and whatever is kept (logs, stored results) is masked in any case.
"""

import asyncio
import logging
from base64 import b64encode

import pytest
from helpers import cli, trusted

from onetool import ToolCall
from onetool.app import App
from onetool.app.database import state_file

pytestmark = pytest.mark.attack("secrets")

KEY = "sk-live-0123456789"
OTHER = "sk-live-9876543210"
PACK = f'''
from onetool.sdk import call_tool, tool
pack = "p"

@tool()
def echo(text: str) -> str:
    """Says what it was told."""
    return text

@tool()
def fails(text: str) -> str:
    """Fails with what it was told."""
    raise ValueError("not " + text)

@tool()
def gives_up(token: str) -> str:
    """Fails with a secret."""
    raise ValueError("no entry with {KEY} here")

@tool()
def leak(text: str = "") -> dict:
    """Gives both secrets away."""
    return {{"one": "{KEY}", "other": "{OTHER}", "again": text}}

@tool()
def data() -> bytes:
    """The same as bytes."""
    return b"key: {KEY}"

@tool()
def inner(text: str) -> str:
    """Calls another one with what it knows itself."""
    return call_tool("p.echo", text="{OTHER}") + text
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / ".onetool"
    (home / "packs").mkdir(parents=True)
    (home / "packs" / "p.py").write_text(PACK)
    (home / "onetool.yaml").write_text("results: {inline_bytes: 2000}\n")
    (home / "secrets.yaml").write_text(f"KEY: {KEY}\nOTHER: {OTHER}\n")
    (home / "secrets.yaml").chmod(0o600)
    return trusted(tmp_path)


@pytest.fixture
def app(folder):
    with App.open() as app:
        yield app


def called(app, name, **args):
    return asyncio.run(app.call(ToolCall("1", name, args, "test")))


def ran(app, code):
    return asyncio.run(app.run(code))


def test_a_guess_comes_back_as_it_was_sent(app):
    assert called(app, "p.echo", text=KEY).data == KEY
    assert called(app, "p.echo", text=f"x{KEY}y").data == f"x{KEY}y"
    encoded = b64encode(KEY.encode()).decode()
    assert called(app, "p.echo", text=encoded).data == encoded
    error = called(app, "p.fails", text=KEY).error
    assert KEY in error.message
    error = called(app, "p.echo", txt=KEY, text=3).error
    assert "***" not in str(error)


def test_what_was_not_sent_is_masked(app):
    assert called(app, "p.leak").data == {"one": "***", "other": "***", "again": ""}
    assert called(app, "p.leak", text=KEY).data == {"one": KEY, "other": "***", "again": KEY}
    assert called(app, "p.leak", text=KEY[:-1]).data == {"one": "***", "other": "***", "again": KEY[:-1]}


def test_what_a_tool_sends_to_another_one_is_not_what_its_caller_sent(app):
    assert called(app, "p.inner", text="!").data == "***!"


@pytest.mark.parametrize("code", [f"'{KEY}'", f"'{KEY[:5]}' + '{KEY[5:]}'", f"p.echo(text='{KEY[:5]}' + '{KEY[5:]}')"])
def test_a_guess_of_code_comes_back_however_it_was_made(app, code):
    assert ran(app, code).value() == KEY
    assert ran(app, f"print({code})").printed == f"{KEY}\n"
    assert KEY in ran(app, f"raise ValueError({code})").error.message


def test_what_a_tool_gives_to_code_is_masked_before_the_code_has_it(app):
    assert ran(app, "''.join(list(p.leak()['one']))").value() == "***"
    assert ran(app, "print(p.leak()['one'][:3])").printed == "***\n"
    assert KEY not in str(ran(app, "d = p.data()\nd if isinstance(d, str) else d.decode()").value())


def test_the_log_is_masked(app, caplog):
    with caplog.at_level(logging.DEBUG, "onetool"):
        called(app, "p.fails", text=KEY)
    told = [str(vars(record)) for record in caplog.records]
    assert any("p.fails" in one for one in told)
    assert not [one for one in told if KEY in one]


def test_stored_results_are_masked(app):
    reply = app.reply(ran(app, f"['{KEY}'] * 500"))
    assert "ot.result" in reply.text
    stored = b"".join(file.read_bytes() for file in state_file(app.config).parent.glob("state.db*"))
    assert KEY.encode() not in stored
    assert b"***" in stored


def test_the_command_line(folder):
    done = cli("tools", "invoke", "p.echo", "--args", f'{{"text": "{KEY}"}}', cwd=folder)
    assert done.stdout.count(KEY) == 2
    assert "***" not in done.stdout
    assert KEY not in cli("tools", "invoke", "p.leak", cwd=folder).stdout


def test_over_rest(app):
    """In a refusal that shows the address, and in one that shows the body."""
    import httpx

    from onetool.interfaces.http.listen import BoundAddress
    from onetool.interfaces.http.site import build_site

    async def asked():
        transport = httpx.ASGITransport(build_site(app, BoundAddress("127.0.0.1", 8765, ("127.0.0.1",)), None, dict))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
            return [
                (await client.get(f"/tools/bundles/{KEY}")).text,
                (await client.post("/ask", json={"prompt": "?", "provider": KEY})).text,
            ]

    for told in asyncio.run(asked()):
        assert KEY in told
        assert "***" not in told


def test_a_part_of_a_secret_as_an_argument_does_not_break_its_mask(app, caplog):
    """Not where the part is in an argument whose name says that it is secret, and that is therefore masked itself."""
    with caplog.at_level(logging.DEBUG, "onetool"):
        error = called(app, "p.gives_up", token=KEY[:4]).error
    assert error.message.endswith("no entry with *** here")
    assert not [record for record in caplog.records if KEY[4:] in str(vars(record))]


def test_names_in_stats_are_masked(app, folder):
    called(app, KEY)
    app.journal.flush()
    app.runtime.state.shrink()  # everything is in the file itself
    content = (folder / ".onetool" / "state.db").read_bytes()
    assert KEY.encode() not in content
    assert b"***" in content
