"""Which words in code have a server waited for: those that mean its pack, not those that only look like it."""

import pytest
from sources.mcp_servers.harness import ran

FOR_EVER = 10**6  # seconds that a server is waited for which never answers


@pytest.fixture
def app(harness):
    with harness.app({"data": harness.nasty("never_answers", connect_timeout=FOR_EVER)}) as app:
        app.connect()
        app.runtime.warm()
        yield app


OWN = {
    "a variable": ("data = [1, 2]\nlen(data)", 2),
    "a comment": ("# the data\n1 + 1", 2),
    "a loop": ("[data for data in [3, 4]]", [3, 4]),
    "an attribute": ("x = {'a': 1}\nx.get('a')", 1),
    "an argument": ("def twice(data):\n    return data * 2\ntwice(4)", 8),
}


@pytest.mark.parametrize("code", OWN)
def test_nobody_waits_for_a_server_that_is_not_meant(app, code):
    words, value = OWN[code]
    result = ran(app, words)
    assert result.error is None, result.error
    assert result.data == value


def test_nor_is_another_error_blamed_on_it(app):
    result = ran(app, "# the data\n1 / 0")
    assert "ZeroDivision" in str(result.error)
    assert "MCP server" not in str(result.error)


def test_one_that_is_meant_is_waited_for_and_the_error_says_why(harness):
    with harness.app({"data": harness.nasty("never_answers", connect_timeout=1)}) as app:
        result = ran(app, "data.read()")
        assert "the MCP server data is not connected" in str(result.error)


@pytest.mark.parametrize(
    "code",
    [
        "time.convert_time(zone='UTC')",
        "import time\ntime.convert_time()",
        "import time as clock\nclock.convert_time()",
        "from time import convert_time",
        "ot.call('time.convert_time')",
    ],
)
def test_a_server_that_is_down_says_so_also_where_python_has_a_module_of_its_name(harness, code):
    with harness.app({"time": harness.nasty("refuses_to_start")}) as app:
        error = ran(app, code).error
        assert "the MCP server time is not connected: " in error.message
        assert "AttributeError" not in error.message
        assert error.reason == "source_unavailable"
        assert "onetool servers logs time" in error.hints
        assert ran(app, "time.now()['iso']").ok
        assert "not connected" not in ran(app, "time.now(zone=1)").error.message
