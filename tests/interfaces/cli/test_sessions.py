"""`onetool sessions`: what was asked and answered, looked at and deleted. No tools are loaded for that."""

import asyncio
import json
import stat

import pytest
from ask.sessions.harness import Harness
from click.testing import CliRunner
from helpers import trusted

from onetool.app.operations import sessions as operations
from onetool.ask.messages import Assistant, Call, File, Result, Usage, User
from onetool.ask.sessions import SessionStore
from onetool.core.errors import OneToolError
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.cli import cli as root
from onetool.interfaces.cli import operations as command

DAY = 24 * 3600


@pytest.fixture
def kept(own_home, tmp_path, monkeypatch):
    """The sessions of somebody who has no config."""
    monkeypatch.chdir(tmp_path)
    return store_in(own_home / ".onetool")


def store_in(home):
    return SessionStore(SqliteDatabase(home / "state.db", makes_folder=True))


def says(kept, id, question="What is tea?", days=0):
    async def turn():
        async with kept.turn(id) as session:
            session.append(User(text=question, files=(File(name="a\x1b.txt", text="x"),)))
            call = Call(id="1", name="shop.buy", args={"item": "tea", "api_key": "sk-1"})
            session.append(Assistant(text="Let me look.", calls=(call,)))
            session.append(Result(call="1", name="shop.buy", content="no \x1b[2J" + "x" * 500, ok=False))
            session.append(Assistant(text="Tea is 3.\x1b[2J"))
            session.end("openai", "m-1", Usage(input=5, output=6), 2)

    asyncio.run(turn())
    if days:
        sql = "UPDATE ask_sessions SET modified = modified - %s WHERE id = %s"
        kept._database.write(lambda work: work.execute(sql, (days * DAY, id)))


def run(*args):
    result = CliRunner().invoke(root, ["sessions", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def at_a_terminal(monkeypatch):
    monkeypatch.setattr(command, "wants_json", lambda as_json: as_json)


def test_they_are_listed(kept, at_a_terminal):
    assert "There are no sessions yet" in run("list").output
    assert json.loads(run("list", "--json").output) == []
    says(kept, "old", days=2)
    says(kept, "new")
    first, second = json.loads(run("list", "--json").output)
    assert (first["id"], first["turns"], first["title"], first["model"]) == ("new", 1, "What is tea?", "m-1")
    assert first["usage"] == {"input": 5, "output": 6, "cached": 0}
    assert first["modified"].endswith("Z")
    assert second["modified"] < first["modified"]
    table = run("list").output
    assert "2 sessions" in table
    assert table.index("new") < table.index("old")


def test_a_long_list_is_cut(kept, at_a_terminal, monkeypatch):
    monkeypatch.setattr(operations, "MAX_SHOWN", 3)
    for number in range(5):
        says(kept, f"s{number}", "What is tea? " * 6, days=number)
    shown = run("list").output
    assert "… and 2 more: --limit 5 lists all of them" in shown
    assert [f"s{number}" in shown for number in range(5)] == [True, True, True, False, False]
    assert len(json.loads(run("list", "--json").output)) == 5
    assert [one["id"] for one in json.loads(run("list", "--json", "--limit", "2").output)] == ["s0", "s1"]
    assert "… and 3 more" in run("list", "--limit", "2").output


def test_a_question_without_an_answer(kept, at_a_terminal):
    async def turn():
        async with kept.turn("tea") as session:
            session.append(User(text="What is tea?"))
            session.end("openai", "m-1", Usage(), 0)

    asyncio.run(turn())
    for how in (("show", "tea"), ("export", "tea")):
        assert "(no answer)" in run(*how).output
    says(kept, "tea")
    assert run("show", "tea").output.count("(no answer)") == 1


def test_one_is_shown(kept, at_a_terminal):
    says(kept, "tea")
    shown = run("show", "last").output
    for part in ("# Session tea", "> What is tea?", "m-1", "> Let me look.", "> Tea is 3.", "shop.buy"):
        assert part in shown, shown
    assert "\x1b" not in shown
    assert "sk-1" not in shown
    data = json.loads(run("show", "tea", "--json").output)
    assert (data["id"], data["turns"], len(data["messages"])) == ("tea", 1, 4)
    assert data["messages"][0]["type"] == "user"
    assert data["messages"][0]["at"].endswith("Z")


@pytest.mark.parametrize(
    "at", ["1e300", "NaN", "-1e18", "-1", '"noon"', "1e400", "9" * 400, "253402300799", "null", "[]"]
)
def test_nothing_that_stands_in_a_record_is_an_error(kept, at_a_terminal, at):
    said = (
        f'{{"type":"session","id":"odd","created":{at},"title":"t","at":{at}}}\n'
        f'{{"type":"user","text":"hello","at":{at}}}\n{{"type":"ended","at":{at},"turns":1}}\n'
        '{"type":"user","text":"bye"}\n'
    )
    for line in said.splitlines():
        Harness(kept._database).add("odd", line.encode())
    for args in (("list",), ("list", "--json"), ("show", "odd"), ("show", "odd", "--json"), ("export", "odd")):
        result = run(*args)
        assert result.exit_code == 0
        assert ("bye" in result.output) == (args[0] != "list")
    shown = run("show", "odd").output
    assert ("hello" in shown) or ("3 unreadable records are left out" in shown)
    if at == "1e300":
        assert json.loads(run("show", "odd", "--json").output)["created"] is None


def test_arguments_that_are_very_deep(kept, at_a_terminal):
    for levels in (150, 400, 900):
        calls = f'[{{"id":"1","name":"t","args":{{"a":{"[" * levels}{"]" * levels}}}}}]'
        line = f'{{"type":"assistant","text":"hello","calls":{calls}}}'
        Harness(kept._database).add(f"deep{levels}", line.encode())
        for args in (("show", f"deep{levels}"), ("show", f"deep{levels}", "--json"), ("export", f"deep{levels}")):
            assert run(*args).exit_code == 0


def test_one_that_goes_on_is_shown_as_it_is(kept, at_a_terminal):
    async def meanwhile():
        async with kept.turn("tea") as session:
            session.append(User(text="Buy tea."))
            session.append(Assistant(calls=(Call(id="1", name="shop.buy"),)))
            await session.settle()
            return [await asyncio.to_thread(run, how, "tea") for how in ("show", "export")]

    shown, exported = asyncio.run(meanwhile())
    assert "UTC · running\n" in shown.output
    assert "UTC · running\n" in exported.output
    kept._database.write(lambda work: work.execute("UPDATE ask_sessions SET modified = modified - 61"))
    assert "This call was interrupted" in run("show", "tea").output


def test_one_that_is_not_there(kept):
    says(kept, "tea")
    for args in (("show", "tee"), ("export", "tee"), ("delete", "tee", "--yes")):
        result = run(*args)
        assert result.exit_code == 1
        assert "there is no session 'tee'; did you mean tea?" in result.output
        assert "onetool sessions list" in result.output


def test_one_is_exported(kept, tmp_path):
    says(kept, "tea")
    text = run("export", "tea").output
    assert text.startswith("# Session tea\n")
    assert "> Tea is 3." in text
    done = run("export", "tea", "-o", "tea.md")
    assert "Wrote tea.md." in done.output
    assert (tmp_path / "tea.md").read_text() == text
    assert stat.S_IMODE((tmp_path / "tea.md").stat().st_mode) == 0o600
    assert "--force replaces it" in run("export", "tea", "--output", "tea.md").output
    assert run("export", "tea", "-o", "tea.md", "--force").exit_code == 0
    assert "Can't write no/tea.md" in run("export", "tea", "-o", "no/tea.md").output


def test_they_are_deleted(kept):
    for id, days in (("a", 0), ("b", 0), ("c", 8), ("d", 9)):
        says(kept, id, days=days)
    assert run("delete", "a").exit_code == 2  # nobody is there to ask
    assert "Deleted 1 session." in run("delete", "a", "a", "--yes").output
    assert "Deleted 2 sessions." in run("delete", "--older-than", "7", "--yes").output
    assert [one.id for one in kept.list()] == ["b"]
    assert "no sessions to delete" in run("delete", "--older-than", "7", "--yes").output
    wrong = {
        (): "Give ID, --older-than DAYS, or --all.",
        ("b", "--all"): "Give one of ID, --older-than and --all, not several.",
        ("b", "--older-than", "0"): "Give one of",
        ("--all", "--older-than", "1"): "Give one of",
        ("--older-than", "nan"): "'nan' is not a valid integer",
        ("--older-than", "-1"): "must be at least 0",
        ("my trip",): "can't be the name of a session",
    }
    for args, told in wrong.items():
        result = run("delete", *args, "--yes")
        assert (result.exit_code, told in result.output) == (2, True)
    assert run("delete", "--all", "--yes").exit_code == 0
    assert kept.list() == []


def test_a_person_is_asked_first(kept, monkeypatch):
    says(kept, "a")
    monkeypatch.setattr("onetool.interfaces.cli.output.is_interactive", lambda: True)
    refused = CliRunner().invoke(root, ["sessions", "delete", "a"], input="\n")
    assert "Delete a permanently? [y/N]" in refused.output
    assert "Nothing was deleted" in refused.output
    assert len(kept.list()) == 1
    CliRunner().invoke(root, ["sessions", "delete", "a"], input="y\n")
    assert kept.list() == []


def test_one_in_use_stays(kept):
    says(kept, "a")
    says(kept, "b")

    async def meanwhile():
        async with kept.turn("a"):
            return await asyncio.to_thread(run, "delete", "--all", "--yes")

    result = asyncio.run(meanwhile())
    assert result.exit_code == 1
    assert "the session a is in use" in result.output
    assert "Deleted 1 session." in result.output
    assert [one.id for one in kept.list()] == ["a"]


def test_no_config_is_read_for_it(tmp_path, monkeypatch):
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "onetool.yaml").write_text("packs: [not-there]\nask: {model: ${NOT_SET}}\n")
    monkeypatch.chdir(trusted(tmp_path))
    says(store_in(tmp_path / ".onetool"), "here")
    assert [one["id"] for one in json.loads(run("list").output)] == ["here"]
    monkeypatch.setenv("ONETOOL_HOME", str(tmp_path / "elsewhere"))
    assert json.loads(run("list").output) == []


def with_database(tmp_path, monkeypatch, url):
    (tmp_path / "onetool.yaml").write_text("database: ${DATABASE_URL}\n")
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("ONETOOL_CONFIG", str(tmp_path / "onetool.yaml"))


def test_sessions_of_a_database(tmp_path, monkeypatch, database_url, database, at_a_terminal):
    with_database(tmp_path, monkeypatch, database_url)
    kept = SessionStore(database)
    for id in ("old", "new"):
        says(kept, id)
    assert [one["id"] for one in json.loads(run("list", "--json").output)] == ["new", "old"]
    assert "What is tea?" in run("show", "last").output
    assert "Tea is 3." in run("export", "old").output
    assert "Deleted 1 session." in run("delete", "old", "--yes").output
    assert [one.id for one in kept.list()] == ["new"]


def test_a_database_that_is_away_is_one_line(tmp_path, monkeypatch):
    with_database(tmp_path, monkeypatch, "postgresql://nobody@127.0.0.1:1/nothing")
    for args in (("list",), ("show", "x"), ("delete", "x", "--yes")):
        result = CliRunner().invoke(root, ["sessions", *args])
        assert result.exit_code == 1
        told = result.output + str(result.exception)  # what is raised, `main` prints as one line
        assert isinstance(result.exception, OneToolError | SystemExit)
        assert "sessions can't be used: the database can't be reached" in told
