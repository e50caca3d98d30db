"""Servers that say what they should not: rubbish, too much, wrong messages, hostile definitions, secrets."""

import json

import pytest
from helpers import until
from sources.mcp_servers.harness import call, is_fine, ran, settle, tools_of

pytestmark = pytest.mark.attack("upstream servers")


def test_rubbish_on_stdout_is_passed_over(harness):
    with harness.app({"bad": harness.nasty("spams_stdout")}) as app:
        for n in range(5):
            assert call(app, "bad.echo", text=f"hä {n}").data == f"hä {n}"
        assert any("INFO starting up" in line for line in app.servers.log_lines("bad", 500))


@pytest.mark.long
@pytest.mark.parametrize("where", ["start", "call"])
def test_a_line_without_end_ends_the_server_not_us(harness, where):
    with harness.app({"bad": harness.nasty("endless_line", where, 50), "good": harness.nasty("ok")}) as app:
        status = settle(app)["bad"]
        if where == "call":
            failed = call(app, "bad.endless")
            assert failed.error.reason == "source_unavailable"
            assert "more than 32 MB" in failed.error.message
            assert call(app, "bad.fine").data == "fine"
        else:
            assert (status.state, status.tools) == ("disconnected", 0)
            assert "more than 32 MB" in status.error
        assert is_fine(app)


def test_five_megabytes_are_no_trouble(harness):
    with harness.app({"good": harness.nasty("ok")}) as app:
        assert len(call(app, "good.big", bytes=5_000_000).data) == 5_000_000
        shown = app.reply(ran(app, "good.big(bytes=800_000)"))
        assert shown.stored.size >= 800_000
        assert len(shown.text) < 20_000


def test_answers_that_nobody_asked_for(harness):
    with harness.app({"bad": harness.nasty("wrong_protocol", "ids")}) as app:
        assert settle(app)["bad"].state == "connected"
        assert call(app, "bad.fine", text="x").data == "fine"
        assert call(app, "bad.wrong_id").data == "fine"
        assert call(app, "bad.null_id_error").data == "fine"


@pytest.mark.parametrize("tool", ["wrong_shape", "both"])
def test_a_result_of_the_wrong_shape_is_an_error_in_words(harness, tool):
    with harness.app({"bad": harness.nasty("wrong_protocol", "ids", timeout=2)}) as app:
        failed = call(app, f"bad.{tool}")
        assert failed.error.code == "execution_error"
        assert "pydantic" not in failed.error.message
        assert call(app, "bad.fine", text="x").data == "fine"


@pytest.mark.parametrize("how", ["handshake", "version", "no_list"])
def test_a_handshake_that_makes_no_sense(harness, how):
    with harness.app(
        {"bad": harness.nasty("wrong_protocol", how, connect_timeout=3), "good": harness.nasty("ok")}
    ) as app:
        status = settle(app)["bad"]
        assert status.state == "disconnected"
        assert status.error
        assert "pydantic" not in status.error
        assert len(status.error) < 700
        assert is_fine(app)


def test_pages_that_never_end_have_an_end(harness):
    with harness.app({"bad": harness.nasty("wrong_protocol", "endless_pages", connect_timeout=5)}) as app:
        status = settle(app)["bad"]
        assert status.state in ("connected", "disconnected")
        assert status.tools <= 100_000


def test_hostile_schemas_spoil_only_their_own_tool(harness):
    with harness.app({"bad": harness.nasty("wrong_protocol", "schemas")}) as app:
        assert settle(app)["bad"].state == "connected"
        assert tools_of(app, "bad") & {"remote", "huge", "loop", "bad_output"} == set()
        assert call(app, "bad.fine", text="x").data == "fine"
        told = " ".join(map(str, app.mistakes))
        assert all(f"bad.{name}" in told for name in ("remote", "huge", "loop", "bad_output"))


def test_definitions_of_the_wrong_shape_spoil_only_themselves(harness):
    with harness.app({"bad": harness.nasty("wrong_protocol", "shapes")}) as app:
        assert settle(app)["bad"].state == "connected"
        assert tools_of(app, "bad") & {"wrong_type", "no_object"} == set()
        assert call(app, "bad.fine", text="x").data == "fine"


def test_a_list_that_is_too_deep_to_be_read(harness):
    with harness.app(
        {"bad": harness.nasty("wrong_protocol", "too_deep", connect_timeout=2), "good": harness.nasty("ok")}
    ) as app:
        assert "its response can't be read" in settle(app)["bad"].error
        assert is_fine(app)


def test_odd_names(harness):
    with harness.app({"bad": harness.nasty("wrong_protocol", "names")}) as app:
        assert settle(app)["bad"].state == "connected"
        names = tools_of(app, "bad")
        assert {"twice", "with space", "with.dot", "with-dash", "with/slash", "größe", "class", "fine"} <= names
        assert names & {"", " ", "new\nline", "esc\x1b[31m", "n" * 1000} == set()
        assert call(app, "bad.with space").data == "fine"
        assert ran(app, "[bad.with_dash(), bad.größe(), bad.twice()]").data == ["fine"] * 3


def test_odd_names_do_nothing_to_a_terminal(harness):
    with harness.app({"bad": harness.nasty("wrong_protocol", "names")}) as app:
        settle(app)
        assert [str(mistake) for mistake in app.mistakes if not str(mistake).isprintable()] == []


@pytest.mark.long
def test_a_flood_on_stderr_blocks_nobody_and_its_end_is_kept(harness):
    with harness.app({"bad": harness.nasty("floods_stderr", 5), "good": harness.nasty("ok")}) as app:
        assert call(app, "bad.fine").data == "fine"
        until(lambda: any("the last line" in line for line in app.servers.log_lines("bad", 1_000_000)))
        lines = app.servers.log_lines("bad", 1_000_000)
        assert len(lines) < 50_000
        assert is_fine(app)


def test_secrets_of_a_server_are_masked_wherever_it_tells_them(harness):
    secret = "s3cr3t-of-the-server"
    block = harness.nasty("tells_secrets", env={"API_KEY": "${KEY}"})
    with harness.app({"bad": block}, secrets={"KEY": secret}) as app:
        results = [call(app, f"bad.{tool}") for tool in ("result", "fails", "refuses")]
        shown = [
            *(result.to_dict() for result in results),
            app.servers.log_lines("bad", 100),
            [spec.description for spec in app.tools()],
            ran(app, "[bad.result(), ot.tools(pattern='bad.', info='full')]").to_dict(),
            [str(status) for status in app.servers.statuses()],
        ]
        assert secret not in json.dumps(shown, default=str)
        assert any("starting with key" in line for line in app.servers.log_lines("bad", 100))
    kept = [file for file in harness.folder.rglob("*") if file.is_file() and file.name != "onetool.yaml"]
    assert [file for file in kept if secret in file.read_text(errors="replace")] == []


def test_a_child_sees_only_what_it_should(harness, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not for servers")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    with harness.app({"good": harness.nasty("ok", env={"MINE": "yes"})}) as app:
        seen = call(app, "good.environment").data
        assert "OPENAI_API_KEY" not in seen
        assert {"PATH", "HOME", "MINE", "LC_ALL", "PIDS"} <= set(seen)
        assert [name for name in seen if name.startswith(("ONETOOL", "PYTEST", "PYTHON"))] == []


def test_an_invalid_entry_hides_no_other_of_its_list(harness):
    with harness.app({"odd": harness.nasty("lists")}) as app:
        settle(app)
        said = "\n".join(app.servers.log_lines("odd", 50))
        assert app.findings() == ()
    for kind, name in (("tool", "'bad'"), ("prompt", "5"), ("resource", "'bad'"), ("resource template", "'bad'")):
        assert f"invalid {kind} ignored: {name}: " in said
