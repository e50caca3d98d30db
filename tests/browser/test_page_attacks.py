"""What strangers can put before the page: words of a model, addresses, windows, drops, pastes.

Nothing of it runs, nothing is loaded from elsewhere, nothing is sent but what the page itself asks for, and the page
goes on.
"""

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ask.stand_in import Says
from browser.harness import asks, harness, named_token
from browser.person import Person

pytestmark = pytest.mark.attack("the page")

ANNA, BEN, BOSS = "anna-token-0123456789", "ben-token-0123456789ab", "boss-token-0123456789a"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="hit=1"><script>hit=1</script></svg>'
SPOILED = "'main :is(script, iframe, object, embed, form[action], img[src^=http], [onerror], [onload], [onclick])'"

WORDS = {
    "an image": "<img src=x onerror=hit=1>",
    "an svg": SVG,
    "an svg as image": "![x](data:image/svg+xml,%3Csvg%20onload=hit=1%3E)",
    "a frame": "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "a style": "<style>*{background:url(http://evil.test/)}</style>",
    "a meta": '<meta http-equiv="refresh" content="0;url=http://evil.test/">',
    "a base": "<base href=http://evil.test/>",
    "a form": "<form action=http://evil.test/><button>x</button></form>",
    "a link to code": "[x](javascript:hit=1)",
    "a link with a tab": "[x](java\tscript:hit=1)",
    "a link with a control": "[x](\x01javascript:hit=1)",
    "a link in capitals": "[x](JaVaScRiPt:hit=1)",
    "a link of entities": "[x](&#106;avascript:hit=1)",
    "a link to a page of data": "[x](data:text/html,<script>hit=1</script>)",
    "a link to a blob": "[x](blob:http://127.0.0.1/x)",
    "a link to a file": "[x](file:///etc/passwd)",
    "a link to view the source": "[x](view-source:http://evil.test/)",
    "a link without a scheme": "[x](//evil.test/)",
    "a link by reference": "[x][1]\n\n[1]: javascript:hit=1",
    "an automatic link": "<javascript:hit=1> <https://evil.test/?javascript:hit=1>",
    "a title": '[x](https://evil.test/ "onmouseover=hit=1")',
    "a picture": "![x](https://evil.test/track.png)",
    "a picture by reference": "![x][1]\n\n[1]: https://evil.test/track.png",
    "a picture in a link": "[![x](https://evil.test/a.png)](javascript:hit=1)",
    "a fence": "```html\n<script>hit=1</script>\n```",
    "a language of a fence": "```<img/src=x/onerror=hit=1>\nx\n```",
    "a fence without an end": "```\n<img src=x onerror=hit=1>",
    "a table": "| <img src=x onerror=hit=1> |\n|---|\n| [x](javascript:hit=1) |",
    "a list": "- <img src=x onerror=hit=1>\n  - [x](javascript:hit=1)",
    "a heading": "# <img src=x onerror=hit=1>",
    "mathematics": "$$\\href{javascript:hit=1}{x}$$ \\url{javascript:hit=1}",
    "a template": "{{constructor.constructor('hit=1')()}} ${hit=1} {@html '<img src=x onerror=hit=1>'}",
    "a comment": "<!-- --!><img src=x onerror=hit=1> -->",
    "a name that clobbers": "<a id=app name=document></a><form id=main><input name=attributes>",
    "half a tag": "<img src=x onerror=hit=1 ",
    "null characters": "<i\x00mg src=x onerror=hit=1><scr\x00ipt>hit=1</script>",
    "names of prototypes": "__proto__ constructor toString [x](__proto__) [constructor]: x",
    "many brackets": "[" * 3_000 + "](" * 500,
    "many stars": "*a **b " * 1_500,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("attacked")
    with harness(folder, **asks(folder, model)) as one:
        yield one


def is_unharmed(person, served):
    """Nothing ran, nothing hostile is an element, and nothing was asked of anybody else."""
    assert person.value("window.hit") is None
    assert person.value(f"document.querySelectorAll({SPOILED}).length") == 0
    assert person.value("document.scripts.length") == 1
    assert person.value("location.origin") == served.url.rstrip("/")
    links = person.value("[...document.querySelectorAll('a[href]')].map((one) => one.protocol)")
    assert set(links) <= {"http:", "https:"}
    asked = [one["request"] for one in person.page.told("Network.requestWillBeSent")]
    own = (served.url, "data:", "about:", "blob:")
    assert [one["url"] for one in asked if not one["url"].startswith(own)] == []
    return asked


@pytest.fixture(scope="module")
def talk(browser, served):
    """One conversation for all words."""
    with browser.page(width=1280, height=800) as page:
        one = Person(page, served.url)
        one.open("#/chat").see("Ask anything")
        yield one


@pytest.mark.parametrize("kind", WORDS)
def test_words_of_a_model(talk, model, served, kind):
    model.will(Says(f"{WORDS[kind]}\n\nEnd of {kind}."))
    talk.open("#/tools").open("#/chat").see("Ask anything")
    talk.ask("Say something.")
    talk.see(f"End of {kind}.")
    is_unharmed(talk, served)


# Addresses that somebody sends


MARKUP = "<img src=x onerror=hit=1>"
PLACES = [
    f"#/{MARKUP}",
    "#/__proto__?__proto__=x",
    "#/constructor?constructor=x",
    "#/%E0%A4%A",
    "#/tools?q=%E0%A4%A&%=%",
    f"#/tools?tool={'../' * 20}login/x/1",
    "#/tools?tool=..%2F..%2Flogin/..%2F..%2Freload/1",
    f"#/servers?server={MARKUP}",
    "#/servers?server=../../reload",
    "#/servers?server=%2e%2e%2f%2e%2e%2freload",
    f"#/results?result={MARKUP}&q={MARKUP}",
    "#/results?result=../ask/sessions",
    "#/chat?session=../../reload",
    f"#/chat?session={MARKUP}",
    f"#/stats?tool={MARKUP}&caller=__proto__",
    f"#/audit?who={MARKUP}&kind={MARKUP}",
    "#/build?import=javascript:hit=1",
    "#/build?bundle=..%2F..%2Freload&tool=../x",
    f"#/recipe?tool={MARKUP}",
    f"#/play?code={MARKUP}",
    "#/health?x=" + "y" * 100_000,
    "#k=" + "A" * 43,
    "#k=" + MARKUP,
    "?token=abc&next=javascript:hit=1#/tools",
    "?next=//evil.test#//evil.test",
]


@pytest.mark.parametrize("place", PLACES)
def test_an_address_that_somebody_sends(person, served, place):
    """It only reads, and only what is below the address of the page."""
    person.forgive("status of")
    person.open(place, "document.querySelector('main, form') !== null")
    person.value("new Promise((done) => setTimeout(done, 200))")
    asked = is_unharmed(person, served)
    assert {one["method"] for one in asked} <= {"GET"} | ({"POST"} if "k=" in place else set())
    assert not [one["url"] for one in asked if "/reload" in one["url"].partition("?")[0].replace("%2F", "_")]
    person.open("#/tools").see("meteo.forecast")


# Other windows


@pytest.fixture
def enemy():
    """A server of another origin: it says what a test wants, and notes what comes."""
    state = {"body": b"", "seen": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state["seen"].append((self.path, dict(self.headers)))
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(state["body"])

        def log_message(self, *_):
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    state["url"] = f"http://127.0.0.1:{server.server_address[1]}/"
    yield state
    server.shutdown()
    server.server_close()


FRAMES = [
    '<iframe id=f src="{url}"></iframe>',
    '<iframe id=f sandbox="allow-scripts allow-same-origin" src="{url}"></iframe>',
    '<object id=f data="{url}"></object>',
    '<embed id=f src="{url}">',
    '<iframe id=f src="{url}#/tools"></iframe>',
    '<iframe id=f src="{url}index.html"></iframe>',
    '<iframe id=f src="{url}assets/"></iframe>',
    "<iframe id=f srcdoc='<iframe src=\"{url}\"></iframe>'></iframe>",
]


@pytest.mark.parametrize("frame", FRAMES)
def test_no_other_page_can_frame_it(person, served, enemy, frame):
    """In a frame none of its scripts is loaded."""
    for text in ("frame", "status of", "Refused", "net::", "violates"):
        person.forgive(text)

    def scripts():
        asked = [one["request"]["url"] for one in person.page.told("Network.requestWillBeSent")]
        return sum(url.startswith(served.url) and url.endswith(".js") for url in asked)

    person.open("#/tools").see("meteo.forecast")
    alone = scripts()
    assert alone > 0
    enemy["body"] = frame.format(url=served.url).encode()
    person.page.ask("Page.navigate", url=enemy["url"])
    person.until(f"location.href === {json.dumps(enemy['url'])} && document.readyState === 'complete'")
    person.value("new Promise((done) => setTimeout(done, 500))")
    assert scripts() == alone


def test_a_window_that_opened_it_can_not_reach_it(person, served, enemy):
    """The opener neither reads nor posts nor leads it to another place: it has no window any more."""
    enemy["body"] = b"<p>enemy</p>"
    person.page.ask("Page.navigate", url=enemy["url"])
    person.until("document.readyState === 'complete' && document.body.innerText === 'enemy'")
    opened = (
        f"window.w = window.open({json.dumps(served.url + '#/tools')}); new Promise((done) => setTimeout(done, 800))"
    )
    person.page.ask("Runtime.evaluate", expression=opened, awaitPromise=True, userGesture=True)
    assert person.value("window.w === null || window.w.closed") is True


@pytest.mark.parametrize("message", ['"hit"', '{"type": "eval", "code": "hit=1"}', "null", '["run", {"code": "1"}]'])
def test_messages_of_other_windows_are_nothing_to_it(person, served, message):
    person.open("#/tools").see("meteo.forecast")
    before = len(person.page.told("Network.requestWillBeSent"))
    person.value(f"window.postMessage({message}, '*'); new Promise((done) => setTimeout(done, 200))")
    is_unharmed(person, served)
    assert len(person.page.told("Network.requestWillBeSent")) - before <= 2


def test_it_tells_no_other_server_where_it_is(person, served, enemy):
    person.open("#/tools?q=secret").see("No tool matches")
    person.page.ask("Page.navigate", url=enemy["url"])
    person.until("location.port !== '' && document.readyState === 'complete'")
    assert enemy["seen"]
    assert not [head for _, head in enemy["seen"] if "Referer" in head]
    person.page.ask("Page.navigate", url="about:blank")  # before the other server ends
    person.until("location.href === 'about:blank'")


# Drops and pastes


@pytest.mark.parametrize("name", ["x.svg", "x.html", "x.md", "x.json", "<img src=x onerror=hit=1>.txt"])
def test_a_file_that_is_dropped(chat, served, tmp_path, name):
    file = tmp_path / name
    file.write_text(SVG + "<script>hit=1</script>")
    chat.drop("Conversation", file)
    chat.until("document.querySelector('main').innerText.includes('x.') || __person.text().includes('onerror')")
    is_unharmed(chat, served)


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "text/uri-list", "image/svg+xml"])
def test_what_is_dragged_in_from_another_page(chat, served, kind):
    spot = chat._find("thing", "Conversation", None, 0)
    data = {"items": [{"mimeType": kind, "data": f"javascript:hit=1//{SVG}"}], "dragOperationsMask": 1}
    for step in ("dragEnter", "dragOver", "drop"):
        chat.page.ask("Input.dispatchDragEvent", type=step, **spot, data=data)
    is_unharmed(chat, served)


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "text/plain", "application/javascript"])
def test_what_is_pasted(chat, served, kind):
    chat.click("Your question")
    chat.paste(("<img src=x onerror=hit=1>.svg", kind, SVG.encode()))
    chat.paste_text(SVG)
    assert chat.reads("Your question").count("<script>") == 1
    is_unharmed(chat, served)


# Conversations and results of others


def test_a_conversation_of_another_owner_is_not_there(browser, model, tmp_path):
    """Neither by its address nor in the list; and signing out leaves nothing for whoever signs in next."""
    named = {"tokens": [named_token("anna", ANNA, "edit"), named_token("ben", BEN, "edit")]}
    with (
        harness(tmp_path, **asks(tmp_path, model), http=named, token=BOSS) as served,
        browser.page(width=1280, height=800) as page,
    ):
        person = Person(page, served.url)
        person.open("#/chat", "document.querySelector('form') !== null").sign_in(ANNA)
        model.will(Says("The secret of Anna is plum."))
        person.open("#/chat").see("Ask anything")
        person.ask("What is my secret?")
        person.see("plum")
        person.until("location.hash.includes('session=')")
        place = person.place
        session = json.loads(person.value("sessionStorage.getItem('onetool.session')") or "null")
        kept = person.value("JSON.stringify({...localStorage})")
        assert BEN not in kept
        assert ANNA not in kept
        assert session is None or "plum" not in str(session)
        person.value("localStorage.clear(); sessionStorage.clear()")
        person.page.reload()
        person.until("document.querySelector('form') !== null")
        person.sign_in(BEN)
        person.open(place)
        person.value("new Promise((done) => setTimeout(done, 500))")
        assert "plum" not in person.text()
        assert "What is my secret" not in person.text()
