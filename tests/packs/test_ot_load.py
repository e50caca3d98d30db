"""`ot.load`: the value behind a handle, in the next run, for its owner alone."""

import asyncio
import math

import pytest

from onetool import App, ToolCall
from onetool.app.database import open_state
from onetool.core.principal import Principal, current_principal
from onetool.services.results import ResultTooLargeError


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text(
        "stats: {enabled: false}\nresults: {inline_bytes: 100, link: true}\nsecrets: {K: hunter2hunter2}\n"
    )
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


def stored(app, code):
    return app.reply(app.run_sync(code)).stored.handle


@pytest.mark.parametrize(
    "code",
    [
        "[{'n': n, 'name': f'no {n}'} for n in range(50)]",
        "{'big': 10 ** 30, 'none': None, 'text': 'é\\n' * 100, 'yes': True, 'half': 0.5}",
        "'- {a: 1}\\n' * 50",
        "'\"' + 'x' * 200 + '\"'",
    ],
)
def test_the_value_comes_back_as_it_was(app, code):
    assert app.run_sync(f"ot.load({stored(app, code)!r}) == ({code})").data is True


def test_what_was_printed_beside_it_is_not_in_it(app):
    assert app.run_sync(f"ot.load({stored(app, 'print(list(range(99)))' + chr(10) + '[1, 2]')!r})").data == [1, 2]
    assert app.run_sync(
        f"ot.load({stored(app, 'print(1)' + chr(10) + 'x' * 0 + 'print(list(range(99)))')!r})"
    ).data.startswith("1\n[0, ")


def test_numbers_that_json_does_not_have(app):
    value = app.run_sync(f"ot.load({stored(app, '[float(chr(110) + chr(97) + chr(110))] * 50')!r})").data
    assert len(value) == 50
    assert all(map(math.isnan, value))


def test_code_computes_with_it_and_counts_one_call(app):
    handle = stored(app, "list(range(1000))")
    result = app.run_sync(f"sum(ot.load({handle!r}))")
    assert (result.data, result.meta["calls"]) == (499500, 1)


def test_nobody_else_gets_it(app):
    handle = stored(app, "list(range(1000))")
    for owner in ("bob", "value"):
        token = current_principal.set(Principal(name="bob", owner=owner))
        try:
            error = app.run_sync(f"ot.load({handle!r})").error
        finally:
            current_principal.reset(token)
        assert (error.reason, error.message) == ("not_found", f"Handle not found: {handle}")
    assert [one.handle for one in app.runtime.results.kept()] == [handle]  # its value is in no list


def test_it_ends_with_the_result(app):
    handle, other = stored(app, "list(range(1000))"), stored(app, "list(range(999))")
    app.runtime.results.remove(other)
    assert app.run_sync(f"ot.load({other!r})").error.reason == "not_found"
    with open_state(app.config) as database:
        database.write(lambda work: work.execute("UPDATE results SET at = at - %s", (3601,)))
    assert app.run_sync(f"ot.load({handle!r})").error.reason == "expired"
    assert "Handle not found" in app.run_sync("ot.load('nonexistent')").error.message


def test_what_is_larger_than_a_page_may_be_is_refused(app):
    handle = stored(app, "list(range(1000))")
    with pytest.raises(ResultTooLargeError):
        app.runtime.results.load(handle, max_bytes=1000)


def test_results_of_tools_that_were_called_by_name(app):
    from onetool.interfaces.mcp.content import from_result
    from onetool.interfaces.mcp.menus import READ_ON_BY_CALL

    async def handle_of(message):
        call = ToolCall("1", "tools.echo", {"message": message}, "test")
        answer = await from_result(await app.call(call), app.runtime, False, READ_ON_BY_CALL.format)
        return answer["content"][1]["uri"].rpartition("/")[2]

    for message in (list(range(99)), "[1, 2]" * 50):
        assert app.run_sync(f"ot.load({asyncio.run(handle_of(message))!r})").data == message


def test_secrets_are_masked(app):
    handle = app.runtime.store_result("a text", ["hunter2hunter2"] * 20).handle
    assert set(app.run_sync(f"ot.load({handle!r})").data) == {"***"}
