"""Every screen of the page with something on it, and how one gets there without reading a word: in any language."""

import json
import sys
from contextlib import contextmanager

from ask.stand_in import Says, StandIn, Wants
from browser.harness import METEO, asks, harness
from browser.person import Person
from interfaces.http.conftest import Served
from interfaces.http.test_page_links import KEY as LINK_KEY
from interfaces.http.test_page_links import page as page_command
from upstream import Reply

TOKEN = "sesame-token-0123456789"
FORECAST = f"{METEO}/forecast/1"
REPORT = f"{METEO}/report/1"
RECIPE = {
    "type": "script",
    "displayName": "Cities",
    "description": "The weather of three cities, and where it is clear.",
    "argSchema": {"type": "object", "properties": {}},
    "scriptImpl": {
        "code": 'step1 = [meteo.forecast(city=item) for item in ["Rome", "Oslo", "Lima"]]\n'
        'step2 = meteo.report(city="Rome") if step1[0]["sky"] == "clear" else None\nstep2'
    },
}
CODE = """cities = ["Rome", "Oslo", "Lima"]
print("asking for", len(cities))
[meteo.forecast(city=city) for city in cities]"""
WEATHER = {"Rome": ("clear", 24.5), "Oslo": ("snow", -2), "Lima": ("cloudy", 19)}
ANSWER = """It is warmest in **Rome**.

| city | sky | °C |
|---|---|---|
| Rome | clear | 24.5 |
| Oslo | snow | -2 |
"""


def go(place, *then):
    """Go there; then press these keys, or wait for these expressions."""

    def show(person):
        person.open(place, READY)
        for step in then:
            if step.startswith("press "):
                person.press(step.removeprefix("press "))
            elif step.startswith("click "):
                selector = step.removeprefix("click ")
                person.until(f"document.querySelector({selector!r}) !== null")
                person.page.click(selector)
            else:
                person.until(step)

    return show


READY = "document.querySelector('main h1, main h2, main form') && !document.querySelector('[aria-busy=true]')"
TABPANEL = "document.querySelector('[role=tabpanel]')?.innerText.length > 0"
DIALOG = "document.querySelector('dialog:modal') !== null"


def _play(person):
    person.page.ask(
        "Page.addScriptToEvaluateOnNewDocument",
        source=f"localStorage.setItem('onetool.play', {json.dumps(json.dumps(CODE))})",
    )
    person.open("#/play", READY)
    person.until("__person.all('.cm-content').length > 0")
    person.press("Control+Enter")
    person.until("document.querySelectorAll('main table tr').length > 3")


def _chat(person):
    person.open("#/chat", READY)
    asked = "fetch('ask/sessions', {headers: {authorization: 'Bearer ' + JSON.parse(localStorage['onetool.session'])}})"
    session = person.value(f"{asked}.then((answer) => answer.json()).then((one) => one.sessions[0].id)")
    person.open(f"#/chat?session={session}", "document.querySelector('.markdown table') !== null")


# By name: how to get there. The sign-in is a matter of another server: see `SIGN_IN`.
SCREENS = {
    "tools": go("#/tools", "document.querySelectorAll('[data-row]').length > 5"),
    "filtered": go("#/tools?q=weather&state=on", "document.querySelectorAll('[data-row]').length > 0"),
    "nothing": go("#/tools?q=nothing-of-the-kind"),
    "try": go(f"#/tools?tool={FORECAST}&tab=try", TABPANEL),
    "about": go(f"#/tools?tool={FORECAST}&tab=about", TABPANEL),
    "usage": go(f"#/tools?tool={FORECAST}&tab=usage", TABPANEL, "document.querySelector('svg') !== null"),
    "versions": go(f"#/tools?tool={FORECAST}&tab=versions", TABPANEL),
    "gone": go("#/tools?tool=00000000-0000-7000-8000-000000000000/gone/1"),
    "palette": go("#/tools", "document.querySelectorAll('[data-row]').length > 5", "press Control+k", DIALOG),
    "keys": go("#/tools", "document.querySelectorAll('[data-row]').length > 5", "press ?", DIALOG),
    "settings": go("#/tools", "click nav .bottom button:not(.who)", DIALOG),
    "build": go("#/build"),
    "build-http": go(f"#/build?tool={FORECAST}", "document.querySelector('main').innerText.includes('/v1/city')"),
    "build-script": go(f"#/build?tool={REPORT}", "document.querySelectorAll('main input').length > 1"),
    "build-new": go(f"#/build?new=http&bundle={METEO}", "document.querySelectorAll('main input').length > 3"),
    "build-bundle": go(f"#/build?bundle={METEO}", "document.querySelectorAll('main input').length > 1"),
    "import": go("#/build?import=1"),
    "play": _play,
    "recipe": go(
        f"#/recipe?tool={METEO}/cities/1",
        "document.querySelectorAll('main input[type=checkbox]').length > 3",
        "press Control+Enter",
        "document.querySelector('main').innerText.includes('Rome: clear')",
    ),
    "recipes": go("#/recipe"),
    "chat": _chat,
    "chats": go("#/chat"),
    "servers": go("#/servers?server=clock", TABPANEL),
    "servers-add": go("#/servers?add=1"),
    "server-settings": go(
        "#/servers?server=clock&tab=settings", "document.querySelector('main section.card') !== null"
    ),
    "results": go("#/results", "click main li a", "document.querySelectorAll('main table tr').length > 3"),
    "stats": go("#/stats", "document.querySelectorAll('main svg').length > 1"),
    "audit": go("#/audit", "document.querySelectorAll('main table tr').length > 5"),
    "health": go("#/health", "document.querySelectorAll('main .card').length > 1"),
}
SIGN_IN = go("", "document.querySelector('input[type=password]') !== null")


def look(person, language, scheme, width):
    """Choose language, theme and size, for all screens that are opened after this."""
    person.page.look(width, 800, scheme)
    remember(person, "language", language)


def sign_in(person, served):
    """Somebody who has signed in as an admin, on all screens that are opened after this."""
    remember(person, "session", served.session())


def remember(person, key, value):
    """Have the page find this in its storage."""
    item = f"'onetool.{key}', {json.dumps(json.dumps(value))}"
    person.page.ask("Page.addScriptToEvaluateOnNewDocument", source=f"localStorage.setItem({item})")


@contextmanager
def busy_stage(folder):
    """A server on which things have happened: calls, a conversation, a stored result, a recipe. It has MCP servers,
    and a token.
    """
    servers = {
        "clock": {"command": sys.executable, "args": ["-m", "mcp_server_time"]},
        "notes": {"command": "no-such-program"},
    }
    with StandIn() as model, harness(folder, token=TOKEN, servers=servers, **asks(folder, model)) as served:
        served.upstream.say(_weather)
        served.put_tool(METEO, "cities", RECIPE)
        _use(served, model)
        yield served


def _weather(seen):
    city = seen.target.rsplit("/", 1)[1].partition("?")[0]
    sky, celsius = WEATHER.get(city, ("clear", 18))
    said = {"city": city, "sky": sky, "celsius": celsius}
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(said).encode())


def _use(served, model):
    for city in ("Rome", "Oslo", "Lima"):
        served.api.post(f"{served.path_of('meteo.forecast')}/invoke", json={"args": {"city": city}})
    served.api.post("/call/numbers.fail", json={"reason": "no luck"})
    rows = "[{'city': f'city {n}', 'celsius': n % 30, 'sky': 'clear'} for n in range(5000)]"
    assert served.api.post("/run", json={"code": rows}).json()["stored"]
    wanted = [Wants("meteo__forecast", {"city": city}) for city in ("Rome", "Oslo")]
    model.will(Says("I look it up.", calls=wanted), Says(ANSWER, usage=(812, 96, 0)))
    asked = served.api.post("/ask", json={"prompt": "Where is it warmer, in Rome or in Oslo?", "approve": "always"})
    assert asked.status_code == 200, asked.text


def loaded(person):
    """Return the page's own files that the browser has loaded."""
    names = person.value("performance.getEntriesByType('resource').map((one) => one.name)")
    return {"index.html", *(name.removeprefix(person.url) for name in names if "/assets/" in name)}


def start(person):
    """The four cards, with what they have to load."""
    person.open(person.key, "document.querySelectorAll('main section.card').length === 4")
    person.until("document.querySelectorAll('main input[type=password]').length > 0")
    person.until("document.querySelectorAll('main pre').length > 0")


@contextmanager
def first_visit(browser, folder, **config):
    """A server on a fresh home with a file of Claude Code in it, and its owner on the page."""
    clock = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
    (folder / ".claude.json").write_text(json.dumps({"mcpServers": {"clock": clock}}))
    home = folder / ".onetool"
    home.mkdir(mode=0o700)
    if config:
        (home / "onetool.yaml").write_text(json.dumps(config))
    env = {"HOME": str(folder), "ONETOOL_HOME": str(home), "OLLAMA_HOST": "127.0.0.1:9"}
    server = Served(folder, "--port", "0", real=True, env=env)
    try:
        with browser.page(width=1280, height=900) as page:
            person = Person(page, f"http://127.0.0.1:{server.port}/")
            person.key = LINK_KEY.search(page_command(server, **env).stdout.strip())[0]
            person.home = home
            yield person
            assert person.faults() == [], "the browser complained"
    finally:
        server.stop()
