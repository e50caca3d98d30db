"""A second opinion: somebody else's mock of the models' APIs, which knows nothing of us, reads what our adapters send
and is read by them. `make setup` installs it where it can; elsewhere this is skipped.

It keeps what it was sent in one form, that of OpenAI, whichever API it came by: so it tells what it understood.
"""

import asyncio
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import npm
import pytest
from msgspec.structs import replace

from onetool.ask.errors import ModelError
from onetool.ask.messages import Assistant, Call, Message, ModelPrompt, ModelReply, Result, Toolset, Usage, User
from onetool.ask.model_client import ModelClient, Retrying
from onetool.ask.providers import adapter
from onetool.core.model_providers import PROVIDERS
from onetool.core.spec import ToolSpec
from onetool.http.client import HttpClient

FOLDER = Path(__file__).parents[2] / ".node-models"
WANTED = Path(__file__).parent / "npm"
PATIENCE = 60
KEY = "a-key"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = Toolset([ToolSpec(name="weather.at", description="What the weather is like", input_schema=SCHEMA)])
CITIES = ({"city": "Oslo"}, {"city": "Zürich"})
LOOKING, ANSWER = "Let me look, 少々お待ちください.", "It rains in both: 傘を持って行ってください."

pytestmark = pytest.mark.skipif(not npm.is_installed(WANTED, FOLDER), reason=npm.why_not(FOLDER))


def fixtures() -> Iterator[dict[str, Any]]:
    """What the mock says to whom."""
    for provider in PROVIDERS:
        name = TOOLS.names(provider).to_provider("weather.at")
        calls = [{"name": name, "arguments": json.dumps(args)} for args in CITIES]
        used = {"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 49}
        rain, slow, cut = (f"{word}, {provider}" for word in ("rain", "slow", "cut"))
        yield {
            "match": {"userMessage": rain, "hasToolResult": False},
            "response": {"content": LOOKING, "toolCalls": calls},
        }
        yield {"match": {"userMessage": rain, "hasToolResult": True}, "response": {"content": ANSWER, "usage": used}}
        error = {"message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit_exceeded"}
        yield {"match": {"userMessage": slow, "sequenceIndex": 0}, "response": {"error": error, "status": 429}}
        yield {"match": {"userMessage": slow}, "response": {"content": ANSWER}}
        yield {"match": {"userMessage": cut}, "response": {"content": ANSWER}, "truncateAfterChunks": 4}


class Mock(NamedTuple):
    url: str

    @contextmanager
    def model(self, provider: str, key: str = KEY, **more: Any) -> Iterator[ModelClient]:
        url = self.url + ("/v1" if provider == "openai" else "")
        with closing(HttpClient()) as client:
            yield ModelClient(adapter(provider), "m", url, key, client, timeout=PATIENCE, **more)

    def hears(self, provider: str, stream: bool, *messages: Message, **more: Any) -> list[Any]:
        """What our side made of its answer."""
        prompt = ModelPrompt(model="m", system="Be brief.", messages=messages, tools=TOOLS, max_tokens=500)

        async def main() -> list[Any]:
            with self.model(provider, **more) as model:
                return [one async for one in model.ask(prompt, stream)]

        return asyncio.run(main())

    def understood(self, words: str) -> list[list[dict[str, Any]]]:
        """The messages of each request whose first words were these."""
        request = urllib.request.Request(f"{self.url}/__aimock/journal", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            bodies = [entry["body"] for entry in json.load(answer) if entry["method"] == "POST"]
        return [body["messages"] for body in bodies if body["messages"][1]["content"] == words]


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mock]:
    file = tmp_path_factory.mktemp("mock") / "fixtures.json"
    file.write_text(json.dumps({"fixtures": list(fixtures())}), encoding="utf-8")
    program = FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    options = ["--port", "0", "--fixtures", str(file), "--strict", "--validate-on-load", "--chunk-size", "4"]
    process = subprocess.Popen(
        [*npm.node(), str(program), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "AIMOCK_API_KEYS": KEY},
    )
    alarm = threading.Timer(PATIENCE, process.kill)
    alarm.start()
    try:
        lines = list(until("listening on ", process.stdout))
        alarm.cancel()
        assert "listening on " in lines[-1], lines
        yield Mock(lines[-1].split()[-1])
    finally:
        alarm.cancel()
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


def until(words: str, lines: Any) -> Iterator[str]:
    for line in lines:
        yield line
        if words in line:
            return


@pytest.mark.parametrize("provider", PROVIDERS)
def test_there_and_back(provider: str, mock: Mock) -> None:
    for stream in (True, False):
        asked = User(text=f"Where is rain, {provider}?")
        said = mock.hears(provider, stream, asked)
        calls = tuple(replace(call, id=call.id or f"call_{i}") for i, call in enumerate(said[-1].calls))
        assert said[-1].text == LOOKING
        assert [(call.name, call.args, call.malformed) for call in calls] == [("weather.at", c, None) for c in CITIES]
        assert len(said) > 3 if stream else len(said) == 1

        results = [Result(call=call.id, name=call.name, content=f"rain in {call.args['city']}") for call in calls]
        turn = Assistant(text=said[-1].text, calls=calls, provider=provider, kept=said[-1].kept)
        reply: ModelReply = mock.hears(provider, stream, asked, turn, *results)[-1]
        assert (reply.text, reply.calls, reply.stop) == (ANSWER, (), "end")
        if provider != "ollama":  # the mock counts nothing there
            assert reply.usage == Usage(input=40, output=9)
        check_understood(provider, mock.understood(asked.text)[-1], calls)


def check_understood(provider: str, messages: list[dict[str, Any]], calls: tuple[Call, ...]) -> None:
    """The whole conversation, as the mock read it from our request."""
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert messages[0]["content"] == "Be brief."
    assert messages[2]["content"] == LOOKING
    functions = [call["function"] for call in messages[2]["tool_calls"]]
    name = TOOLS.names(provider).to_provider("weather.at")
    assert [(one["name"], json.loads(one["arguments"])) for one in functions] == [(name, args) for args in CITIES]
    assert ["Oslo" in messages[3]["content"], "Zürich" in messages[4]["content"]] == [True, True]
    if provider != "ollama":  # where calls have no ids for the mock
        ids = [call.id for call in calls]
        assert [call["id"] for call in messages[2]["tool_calls"]] == ids
        assert [message["tool_call_id"] for message in messages[3:]] == ids


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_goes_wrong(provider: str, mock: Mock) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    said = mock.hears(provider, True, User(text=f"Be slow, {provider}"), sleep=sleep)
    assert isinstance(said[0], Retrying)
    assert pauses[0] >= 1.0  # what it asks for
    assert said[-1].text == ANSWER

    with pytest.raises(ModelError) as caught:
        mock.hears(provider, True, User(text=f"Be cut, {provider}"), tries=1)
    assert caught.value.reason == "unreachable"

    with pytest.raises(ModelError) as caught:
        mock.hears(provider, True, User(text="Hello?"), key="another-key")
    assert caught.value.reason == "unauthorized"


def test_models(mock: Mock) -> None:
    async def main() -> list[str]:
        with mock.model("openai") as model:
            return await model.names()

    names = asyncio.run(main())
    assert "gpt-4o" in names
    assert "text-embedding-3-small" not in names
