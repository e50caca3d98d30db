"""One browser for all tests, one server for those of a file, and a person who uses the page with them."""

import os
from pathlib import Path

import pytest
from ask.stand_in import StandIn
from browser import person as people
from browser.chromium import chromium, found
from browser.harness import harness
from helpers import BROWSER_FILES
from postgres import database_url, postgres

__all__ = ["database_url", "postgres"]

HERE = Path(__file__).parent
WHOLE = os.environ.get("ONETOOL_BROWSER") == "full"


def pytest_collection_modifyitems(config, items):
    """`make test` walks once through the screens that most people see; `make test-browser` does everything."""
    seen, deselected = set(), set()
    for item in items:
        if WHOLE or item.path.parent != HERE:  # this hook is called with the tests of all folders
            continue
        if item.path in seen or item.path.name not in BROWSER_FILES:
            deselected.add(item)
        seen.add(item.path)
    if deselected:
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]


@pytest.fixture(scope="session")
def browser():
    """A Chromium that reaches this machine alone. Each page has a context of its own: nothing is kept for the next."""
    if found() is None:
        pytest.skip("THE PAGE IS NOT TESTED: no Chromium on this machine (`make browser`, or ONETOOL_TEST_BROWSER)")
    with chromium("127.0.0.1") as one:
        yield one


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A real server with tools of every source."""
    with harness(tmp_path_factory.mktemp("served")) as one:
        yield one


@pytest.fixture
def person(browser, served):
    """Somebody who opens the page, with nothing kept from before. A fault that nobody provoked fails the test."""
    with browser.page(width=1280, height=800) as page:
        one = people.Person(page, served.url)
        yield one
        assert one.faults() == [], "the browser complained"


@pytest.fixture(scope="module")
def model():
    """Stands for a hosted model, and says what a test has it say."""
    with StandIn() as one:
        yield one


@pytest.fixture
def chat(person):
    """Somebody who has Chat open."""
    return person.open("#/chat").see("Ask anything", "With tools")
