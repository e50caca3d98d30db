"""Every screen in every language, theme and size: `make test-browser`. Nothing is wrong for anybody on any of them."""

import re
from itertools import product

import pytest
from browser.harness import harness
from browser.person import Person
from browser.screens import SCREENS, SIGN_IN, busy_stage, go, look, sign_in
from interfaces.web.test_catalogues import catalogue

LOOKS = list(product(("en", "zh-CN"), ("light", "dark"), (1280, 768, 375)))
# Texts of ours as they stand in the page, one by one; not those of others, nor code.
OURS = """__person.all('main *, nav *, dialog *')
  .filter((one) => one.checkVisibility() && !one.closest('.theirs, code, pre, kbd'))
  .flatMap((one) => [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim())
    .concat(['aria-label', 'title', 'placeholder'].map((key) => one.getAttribute(key) ?? ''))).filter(Boolean)"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    with busy_stage(tmp_path_factory.mktemp("busy")) as one:
        yield one


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with harness(tmp_path_factory.mktemp("guarded"), token="sesame-token-0123456789") as one:
        yield one


def wrong(person):
    """All that is wrong with what is shown now, in words."""
    return [*person.axe(), *person.overflow()]


def untranslated(person, language):
    """Keys that are shown in place of texts; and English where another language was chosen."""
    known, english = dict(catalogue(language)), dict(catalogue("en"))
    meant = {text for key, text in english.items() if known[key] != text and "{" not in text and "|" not in text}
    left = english.keys() | ({text.strip('"') for text in meant} if language != "en" else set())
    return [text for text in person.value(OURS) if text in left and not re.fullmatch(r"[\W\d]*", text)]


@pytest.mark.parametrize(("language", "scheme", "width"), LOOKS)
def test_every_screen(browser, busy, language, scheme, width):
    found = {}
    for name, show in SCREENS.items():
        with browser.page() as page:
            person = Person(page, busy.url)
            look(person, language, scheme, width)
            sign_in(person, busy)
            if name == "gone":
                person.forgive("status of 404")
            try:
                show(person)
                found[name] = [*wrong(person), *untranslated(person, language), *person.faults()]
            except AssertionError as error:
                found[name] = [str(error)[:400]]
    assert "\n".join(f"{name}: {fault}" for name, faults in found.items() for fault in faults) == ""


WIDTHS = (1280, 1440, 1920, 390)


@pytest.fixture(scope="module")
def crowded(busy):
    """The same server with tools of an import, whose names and texts are as long as they get."""
    word = "averyveryverylongwordwithoutanyplacetobreak"
    parameter = {"name": word, "in": "query", "description": f"{word} " * 5, "schema": {"type": "string"}}
    facts = {"summary": f"{word} {word}", "description": f"{word} " * 20, "parameters": [parameter], "tags": [word]}
    paths = {
        f"/{word}/{word}/{n}": {
            "get": {**facts, "operationId": f"{word}-{n}", "responses": {"200": {"description": "."}}}
        }
        for n in range(19)
    }
    info = {"title": f"{word} {word}", "version": "1", "description": f"{word} " * 20}
    document = {"openapi": "3.1.0", "info": info, "servers": [{"url": busy.upstream.url}], "paths": paths}
    done = busy.api.post("/tools/imports/openapi?as=crowd", json=document)
    assert done.status_code == 200, done.text
    rows = [one for one in busy.tools().values() if one["bundleSlug"] == "crowd"]
    assert len(rows) == 19
    return rows[0]


def test_no_screen_is_wider_than_the_window(browser, busy, crowded):
    key = f"{crowded['bundleID']}/{crowded['slug']}/{crowded['version']}"
    inputs = "document.querySelectorAll('main input').length > 1"
    more = {f"crowd-{tab}": go(f"#/tools?tool={key}&tab={tab}") for tab in ("try", "about", "usage", "versions")}
    more["crowd-bundle"] = go(f"#/build?bundle={crowded['bundleID']}", inputs)
    more["crowd-tool"] = go(f"#/build?tool={key}", inputs)
    more["crowd-new"] = go(f"#/build?new=http&bundle={crowded['bundleID']}", inputs)
    more["crowd-recipe"] = go("#/recipe")
    found = {}
    for name, show in {**SCREENS, **more}.items():
        with browser.page() as page:
            person = Person(page, busy.url)
            look(person, "en", "light", WIDTHS[0])
            sign_in(person, busy)
            show(person)
            for width in WIDTHS:
                page.look(width, 800, "light")
                person.until(f"innerWidth === {width}")
                found[f"{name} at {width}"] = person.overflow()
    assert "\n".join(f"{place}: {one}" for place, all in found.items() for one in all) == ""


@pytest.mark.parametrize(("language", "scheme", "width"), LOOKS)
def test_signing_in(browser, guarded, language, scheme, width):
    with browser.page() as page:
        person = Person(page, guarded.url)
        look(person, language, scheme, width)
        SIGN_IN(person)
        assert [*wrong(person), *untranslated(person, language), *person.faults()] == []
