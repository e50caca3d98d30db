"""What `ot` tells a caller under an allow-list: nothing of what it may not call."""

import asyncio
import json

import pytest

from onetool.app import App
from onetool.core.call import ToolCall

NOBODY = {"command": "no-such-command-anywhere"}


@pytest.fixture
def app(tmp_path):
    file = tmp_path / "onetool.yaml"
    broken = {"name": "bad", "description": "d", "parameters": {"type": "nonsense"}}
    file.write_text(json.dumps({"servers": {"shop": NOBODY, "bank": NOBODY}, "tools": [broken]}))
    with App.open(file) as app:
        yield app


def told(app, name, *further):
    call = ToolCall("1", name, {}, "test")
    return asyncio.run(app.call(call, allowed=[name, *further] if further else None)).data


def test_servers_are_those_whose_tools_may_be_called(app):
    assert [one["name"] for one in told(app, "ot.servers")] == ["shop", "bank"]
    assert [one["name"] for one in told(app, "ot.servers", "shop.pay")] == ["shop"]
    assert told(app, "ot.config", "shop.pay")["servers"] == ["shop"]


def test_health_is_that_of_what_may_be_called(app):
    assert told(app, "ot.health")["findings"]
    health = told(app, "ot.health", "time.now", "shop.pay")
    assert health["registry"] == {"status": "degraded", "tool_count": 2}
    assert "findings" not in health
    assert "bank" not in json.dumps(health)
    assert list(health["proxy"]["servers"]) == ["shop"]
