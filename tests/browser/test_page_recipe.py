"""Somebody builds a recipe on the page: the weather of three cities, mailed as a table. Then others run it, too."""

import asyncio
import json

import pytest
from ask.stand_in import Says, Wants
from browser.harness import METEO, asks, harness
from helpers import cli
from mcp.client import Client
from upstream import Reply

MAIL = "01890a5d-ac96-774b-bcce-b302099a8058"
DEGREES = {"Rome": 24, "Oslo": 7, "Lima": 19}
TEXT = {"type": "string"}
NOW = {
    "type": "http",
    "description": "The weather in a city, now.",
    "argSchema": {"type": "object", "properties": {"city": TEXT}, "required": ["city"]},
}
SEND = {
    "type": "http",
    "description": "Sends a mail.",
    "argSchema": {"type": "object", "properties": {"to": TEXT, "text": TEXT}, "required": ["to", "text"]},
}
TABLE = "Now:\n| city | celsius |\n| --- | --- |\n| Rome | 24 |\n| Oslo | 7 |\n| Lima | 19 |"


class Post:
    """The API behind both tools. It keeps the mails, and counts what was asked of it."""

    def __init__(self):
        self.mails, self.asked = [], []

    def __call__(self, seen):
        if seen.method == "POST":
            self.mails.append(json.loads(seen.body))
            return self.json({"sent": len(self.mails)})
        city = seen.target.rsplit("/", 1)[1]
        self.asked.append(city)
        if city not in DEGREES:
            return Reply(404)
        return self.json({"city": city, "daily": [{"celsius": DEGREES[city]}], "celsius": DEGREES[city]})

    def json(self, value):
        return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(value).encode())


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("recipe")
    with harness(folder, **asks(folder, model)) as one:
        yield one


@pytest.fixture(scope="module")
def post(served):
    answers, url = Post(), served.upstream.url
    served.upstream.say(answers)
    served.put_tool(METEO, "now", {**NOW, "httpImpl": {"request": {"urlTemplate": f"{url}/now/${{city}}"}}})
    served.put_bundle(MAIL, "mail")
    request = {"method": "POST", "urlTemplate": f"{url}/mail", "body": {"to": "${to}", "text": "${text}"}}
    served.put_tool(MAIL, "send", {**SEND, "httpImpl": {"request": request}})
    return answers


def add(person, name):
    person.click("Add a step", role="button")
    person.type_into("Find anything", name)
    person.click(name, role="option")


def test_the_weather_of_three_cities_is_mailed_as_a_table(person, served, post, model):
    person.open("#/tools")
    person.see("numbers.add")
    person.press("g r")
    person.see("A recipe is a list of steps")
    add(person, "meteo.now")
    person.click("For each item of a list")
    person.type_into("The list", "Rome\nOslo\nLima")
    person.click("Pick city from a step")
    person.click("Use this")
    person.see("item")
    person.click("Run to here")
    person.see("3 rows", "Oslo")
    assert post.asked == ["Rome", "Oslo", "Lima"]

    add(person, "mail.send")
    person.type_into("to", "ann@example.org")
    person.type_into("text", "Now:\n")
    person.click("Pick text from a step")
    assert person.axe() == []
    person.click("As a table")
    person.click("daily", role="checkbox")
    assert person.axe() == []
    person.click("Use this table")
    assert person.reads("text") == 'Now:\n${table(step1, "city", "celsius")}'
    person.click("Only if", nth=1)
    person.click("Pick First value from a step")
    person.click("7", role="treeitem")
    person.see("step1[1].daily[0].celsius")
    person.choose("Comparison", "<")
    person.type_into("Second value", "10")
    person.click("Run to here")
    person.see("sent")
    assert post.mails == [{"to": "ann@example.org", "text": TABLE}]
    assert post.asked == ["Rome", "Oslo", "Lima"]  # nothing was called twice
    assert person.axe() == []

    person.click("Code")
    person.see('if step1[1]["daily"][0]["celsius"] < 10 else None')
    person.press("Control+s")
    person.choose("Bundle", "meteo")
    person.type_into("Name", "mailed")
    person.click("Save", role="button")
    person.see("Saved: mailed 1")
    person.reload()
    person.see("meteo.mailed", "step1[1].daily[0].celsius", "item", "3 rows", "sent")
    assert len(post.asked) == 3  # what the steps gave is still known

    by_command_line(served)
    assert [one["text"] for one in post.mails] == [TABLE] * 2
    by_mcp(served)
    assert [one["text"] for one in post.mails] == [TABLE] * 3
    by_chat(person)
    assert [one["text"] for one in post.mails] == [TABLE] * 4
    by_the_model_in_chat(person, model, post)
    assert [one["text"] for one in post.mails] == [TABLE] * 5


def by_command_line(served):
    folder = served.server.folder
    env = {"ONETOOL_HOME": str(folder / "home"), "HOME": str(folder)}
    done = cli("--config", "onetool.yaml", "tools", "invoke", "meteo.mailed", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["data"] == {"sent": 2}


def by_mcp(served):
    async def call():
        async with Client(f"{served.url}mcp") as client:
            return await client.call_tool("run", {"code": "meteo.mailed()"})

    assert not asyncio.run(call()).is_error


def by_chat(person):
    person.open("#/chat").see("Ask anything")
    person.click("Your question")
    person.press("+")
    person.until("__person.focused()[1] === 'Call a tool'")
    person.write("meteo.mailed")
    person.click("meteo.mailed", role="option")
    person.click("Run", role="button")
    person.see("+meteo.mailed", "OK")


def by_the_model_in_chat(person, model, post):
    model.will(Says(calls=[Wants("meteo__mailed")]), Says("The table is on its way."))
    person.type_into("Your question", "Mail me the weather of my cities.")
    person.press("Enter")
    person.see("The model wants to call meteo.mailed")
    assert len(post.mails) == 4, "nothing is mailed before it is approved"
    person.click("Approve", role="button")
    person.see("The table is on its way.")
    assert "{sent: 4}" in json.dumps(model.seen[0].body), "it has read the call of the person"


def test_code_that_is_more_than_a_recipe_opens_as_code(person, served, post):
    served.put_tool(METEO, "loop", {"type": "script", "scriptImpl": {"code": "sum(n for n in range(9))"}})
    person.open(f"#/recipe?tool={METEO}/loop/1")
    person.see("meteo.loop", "This code is not a recipe", "sum(n for n in range(9))")
    person.type_into("Code", "sum(n for n in range(7))")  # it can be edited here
    person.see("Unsaved draft")
    person.open(f"#/build?tool={METEO}/loop/1")
    person.see("meteo.loop", "sum(n for n in range(9))")
    assert "Open as a recipe" not in person.text()

    code = 'step1 = meteo.now(city="Nowhere")\nstep2 = meteo.now(city=step1["city"])\nstep2\n'
    served.put_tool(METEO, "steps", {"type": "script", "scriptImpl": {"code": code}})
    person.open(f"#/build?tool={METEO}/steps/1")
    assert "Nowhere" in person.reads("Code")  # the editor is there, and nothing moves any more
    person.click("Open as a recipe")
    person.see("step1.city")
    assert person.reads("city") == "Nowhere"
    person.click("Run to here", nth=1)
    person.see("Failed")
    person.click("Remove step1")
    person.see("step1 is neither an earlier step", "Removed: step1")
    person.click("Undo")
    person.see_no("step1 is neither an earlier step")
    assert person.reads("city") == "Nowhere"
    person.click("Code")
    person.type_into("Code", "import math\nmath.pi")
    person.see("The code contains more than steps")
    person.click("Steps")
    person.see("This code is not a recipe")
