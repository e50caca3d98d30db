"""A missing key of a tool's result: the error names the keys that there are."""

import pytest
from helpers import each

from onetool import App

PACK = '''
def quotes() -> dict:
    """Quotes."""
    return load({"rows": [{"day": "1", "close": 2}], "total": 1})

def rows() -> list:
    """Rows."""
    return load([{"day": "1", "close": 2}])

def load(value):
    return value
'''
ROW = "returned by stock.{} has the keys day, close"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    (folder / "packs").mkdir()
    (folder / "packs" / "stock.py").write_text(PACK)
    (folder / "onetool.yaml").write_text("packs: [packs]\nstats: {enabled: false}\n")
    with App.open(folder / "onetool.yaml") as app:
        yield app


@each(
    ("code", "hint"),
    [
        ("x = stock.quotes()\nx['date']", "returned by stock.quotes has the keys rows, total"),
        ("stock.quotes()['rows'][0]['date']", ROW.format("quotes")),
        ("x = stock.quotes()\nfor row in x['rows']:\n    row['date']", ROW.format("quotes")),
        ("[row['date'] for row in stock.rows()]", ROW.format("rows")),
        ("key = 'date'\nx = stock.rows()[0]\nx[key]", ROW.format("rows")),
        ("import asyncio\nx = await stock.quotes()\nx['date']", "has the keys rows, total"),
        ("ot.call('stock.quotes')['date']", "returned by stock.quotes has the keys rows, total"),
        ("x = stock.quotes()\nx.total", "write ['total']; the object returned by stock.quotes has the keys rows"),
        ("x = stock.quotes()\nx.date", "the object returned by stock.quotes has the keys rows, total"),
        ("x = stock.quotes()\nx.rows[0]", "write ['rows']"),
        ("x = stock.rows()\nx.day", "stock.rows returned a list here: index it"),
        ("stock.rows()\nx = {'a': 1}\nx.a", "write ['a']"),
    ],
)
def test_the_keys_that_there_are_are_named(app, code, hint):
    error = app.run_sync(code).error
    assert error.message.startswith(("KeyError: ", "AttributeError: "))
    assert hint in " ".join(error.hints)


@pytest.mark.parametrize("code", ["x = {'a': 1}\nx['b']", "stock.rows()\nx = {'a': 1}\nx['b']", "'x'.date"])
def test_what_comes_from_no_call_has_no_such_hint(app, code):
    assert not any("keys" in hint for hint in app.run_sync(code).error.hints)
