"""The starter config: valid as it is, valid with everything uncommented, and it shows every key of the first level."""

import re
from collections.abc import Callable
from pathlib import Path

from onetool.config import Config
from onetool.config.check import fields_of
from onetool.config.model import Keys
from onetool.config.starter import starter_config


def test_it_loads_as_it_is(load: Callable[..., Config]) -> None:
    config = load(starter_config())
    assert config.warnings == ()
    (tool,) = config.tools
    assert tool.mistakes == ()
    assert tool.definition["name"] == "weather"
    assert tool.definition["implementation"]["mock_response"] == {"celsius": 21, "sky": "clear"}
    assert set(tool.definition) == {"name", "description", "type", "handler", "parameters", "implementation"}


def test_it_shows_every_key_of_the_first_level() -> None:
    """What is further inside is on the page of the config, all of it."""
    keys = fields_of(Keys)
    assert {"servers", "ask", "http"} <= keys.keys()
    missing = [key for key in keys if not re.search(rf"(?<!\w){key}:", starter_config())]
    # Without `watch` a server of this machine reads settings again, which most people want.
    assert set(missing) == {"watch"}, "show the key in src/onetool/config/starter.py"


def test_it_loads_with_every_comment_uncommented(load: Callable[..., Config], write: Callable[..., Path]) -> None:
    write("", "more.yaml")
    write("", "prompts.yaml")
    write("DOCS_TOKEN: abcdefgh\n", "secrets.yaml")
    text = re.sub(r"^#(?=[^ ]|  )", "", starter_config(), flags=re.MULTILINE)
    shared = {"DATABASE_URL": "postgresql://127.0.0.1/onetool", "CLUSTER_KEY": "k" * 32, "METRICS_TOKEN": "m" * 32}
    config = load(text, {"ONETOOL_TOKEN": "sesame", **shared})
    assert config.warnings == ()
    assert (config.servers["docs"].auth, config.http.token) == ("abcdefgh", "sesame")
    assert config.snippets["research"].params["count"].default == 5
    assert config.aliases == {"now": "time.now"}


def test_it_is_short() -> None:
    assert len(starter_config().splitlines()) < 80
    assert max(map(len, starter_config().splitlines())) <= 120
