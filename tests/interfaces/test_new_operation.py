"""An operation is one function in one file: its route, command, completion, schema and role come from it."""

import asyncio
import json
import sys
from types import SimpleNamespace

import httpx
import pytest
from click.testing import CliRunner
from interfaces.rest.served import with_head

from onetool.app import operations
from onetool.core.principal import Principal, current_principal
from onetool.interfaces import cli
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.openapi import TABLES, describe_routes
from onetool.interfaces.rest.operations import operation_routes
from onetool.interfaces.rest.routing import RouteTable

FILE = '''"""Greet people.

In a friendly way.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import Input, Query


class Person(msgspec.Struct):
    """A person to greet."""

    name: str
    is_near: bool


class People(msgspec.Struct):
    """The people to greet."""

    people: list[Person]


@operation(
    "GET", "/tools/people", "Greetings", completes="person", command=Command("greetings list", "people", ("name",))
)
def list_people(at: At) -> People:
    """List the people to greet."""
    return People([Person("ada", True), Person("bob", False)])


class Times(Query, frozen=True):
    """How often."""

    times: Annotated[int, Meta(ge=1, le=3, description="How often.")] = 1


class Words(Input, frozen=True):
    """The words of a greeting."""

    word: Annotated[str, Meta(max_length=10, description="The first word.")] = "Hello"
    is_loud: Annotated[bool, Meta(description="Add an exclamation mark.")] = False


class Greeting(msgspec.Struct):
    """A greeting."""

    text: str


@operation(
    "POST", "/tools/people/{person}/greet", "Greetings", role="edit", example={}, command=Command("greetings say")
)
async def greet_person(at: At, person: str, query: Times, words: Words) -> Greeting:
    """Greet a person.

    In a friendly way.
    """
    text = f"{words.word}, {person}{'!' * words.is_loud} " * query.times
    at.say(text.strip())
    return Greeting(text.strip())
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "greetings.py").write_text(FILE)
    before = [*operations.all_operations()]
    monkeypatch.setattr(operations, "__path__", [*operations.__path__, str(tmp_path)])
    monkeypatch.setattr(cli, "OPERATIONS", [*cli.OPERATIONS, tmp_path])
    vars(cli.cli).pop("commands_in", None)
    yield tmp_path
    vars(cli.cli).pop("commands_in", None)
    sys.modules.pop("onetool.app.operations.greetings", None)
    operations.OPERATIONS[:] = before


def ask(method, path, role, body=None):
    class App(RestApp):
        routes = RouteTable(operation_routes())

    runtime = SimpleNamespace(redact=lambda value, *_: value)
    app = SimpleNamespace(journal=SimpleNamespace(), runtime=runtime, catalog=SimpleNamespace(registry=None))
    app.journal.begin = lambda *_, **more: asyncio.sleep(0)

    async def send():
        current_principal.set(Principal(name=role, role=role))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(with_head(App(app))), base_url="http://x") as client:
            return await client.request(method, path, json=body)

    return asyncio.run(send())


def run(*args, **env):
    return CliRunner().invoke(cli.cli, args, prog_name="onetool", env=env)


def test_it_has_a_route_with_a_role_and_checks_what_comes_in():
    assert ask("GET", "/tools/people", "call").json()["people"][1] == {"name": "bob", "is_near": False}
    greeting = ask("POST", "/tools/people/ada/greet?times=2", "edit", {"word": "Hi", "isLoud": True})
    assert (greeting.status_code, greeting.json()) == (200, {"text": "Hi, ada! Hi, ada!"})
    assert ask("POST", "/tools/people/ada/greet", "call", {}).json()["code"] == "role_needed"
    for path, body, pointer, words in (
        ("?times=4", {}, "/times", "must be from 1 to 3, got the number 4"),
        ("?tiems=4", {}, "/tiems", "did you mean times?"),
        ("", {"word": "x" * 11}, "/word", "must have at most 10 characters, but has 11"),
        ("", {"isLoud": "yes"}, "/isLoud", "expected true or false, got the string 'yes'"),
    ):
        wrong = ask("POST", f"/tools/people/ada/greet{path}", "edit", body).json()
        assert (wrong["status"], wrong["pointer"], words in wrong["detail"]) == (400, pointer, True), wrong


def test_it_has_a_command_with_its_options(tmp_path):
    shown = run("--help").stdout
    assert "Greet people." in shown
    assert "Add an exclamation mark." in run("greetings", "say", "--help").stdout
    said = run("greetings", "say", "ada", "--word", "Hi", "--times", "2", "--is-loud")
    assert said.stdout == "Hi, ada! Hi, ada!\n"
    assert json.loads(run("greetings", "say", "bob", "--json").stdout) == {"text": "Hello, bob"}
    assert [row["name"] for row in json.loads(run("greetings", "list").stdout)] == ["ada", "bob"]
    wrong = run("greetings", "say", "ada", "--times", "4")
    assert (wrong.exit_code, "--times" in wrong.stderr, "from 1 to 3" in wrong.stderr) == (2, True, True)


def test_its_names_complete_a_line():
    line = "onetool greetings say b"
    env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "3"}
    assert run(**env).stdout == "plain,bob\n"


def test_it_is_in_the_document_of_the_api():
    new = RouteTable([one for one in operation_routes() if one.tag == "Greetings"])
    _, paths, schemas = describe_routes((*TABLES, new))
    greet = paths["/tools/people/{person}/greet"]["post"]
    assert (greet["operationId"], greet["summary"]) == ("greetPerson", "Greet a person")
    assert greet["description"] == "In a friendly way. Needs the role edit."
    assert [one["name"] for one in greet["parameters"]] == ["times"]
    assert greet["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Greeting")
    assert schemas["Words"]["properties"]["isLoud"]["description"] == "Add an exclamation mark."
