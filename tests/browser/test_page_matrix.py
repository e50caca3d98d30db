"""Every screen in every language, theme and size: `make test-browser`. Nothing is wrong for anybody on any of them."""

import re
from itertools import product

import pytest
from browser.harness import harness
from browser.person import Person
from browser.screens import SCREENS, SIGN_IN, busy_stage, look, sign_in
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
    for name, go in SCREENS.items():
        with browser.page() as page:
            person = Person(page, busy.url)
            look(person, language, scheme, width)
            sign_in(person, busy)
            if name == "gone":
                person.forgive("status of 404")
            try:
                go(person)
                found[name] = [*wrong(person), *untranslated(person, language), *person.faults()]
            except AssertionError as error:
                found[name] = [str(error)[:400]]
    assert "\n".join(f"{name}: {fault}" for name, faults in found.items() for fault in faults) == ""


@pytest.mark.parametrize(("language", "scheme", "width"), LOOKS)
def test_signing_in(browser, guarded, language, scheme, width):
    with browser.page() as page:
        person = Person(page, guarded.url)
        look(person, language, scheme, width)
        SIGN_IN(person)
        assert [*wrong(person), *untranslated(person, language), *person.faults()] == []
