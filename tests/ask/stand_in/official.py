"""The providers' own clients, all used in one way, to show that the stand-in is right. Their imports take seconds: each
is imported when its driver is made."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from ask.stand_in.server import StandIn

KEY = "a-key"
ABOUT = "What the weather is like"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


class Heard(NamedTuple):
    """What a client made of an answer. Calls are (name, args); usage is (input, output)."""

    text: str
    calls: list[tuple[str, Any]]
    stop: str
    usage: tuple[int, int]
    thinking: str = ""
    pieces: int = 1  # of text


class Driver(Protocol):
    """One client, and one conversation at a time, with the messages as that client has them."""

    refusals: Mapping[int, type[Exception]]

    def begin(self, *tools: str) -> None: ...

    def say(self, text: str) -> None: ...

    def answer(self, *results: str) -> None:
        """What came of the calls heard last."""
        ...

    def hear(self, stream: bool) -> Heard: ...

    def models(self) -> list[str]: ...

    def close(self) -> None: ...


class OpenAI:
    def __init__(self, model: StandIn) -> None:
        import openai
        from openai.lib.streaming.chat import ChatCompletionStreamState

        self.client = openai.OpenAI(base_url=model.urls["openai"], api_key=KEY, max_retries=0, timeout=20)
        self.refusals = {401: openai.AuthenticationError, 429: openai.RateLimitError, 400: openai.BadRequestError}
        self._state, self._omit = ChatCompletionStreamState, openai.omit
        self.begin()

    def begin(self, *tools: str) -> None:
        functions = [{"name": name, "description": ABOUT, "parameters": SCHEMA} for name in tools]
        self._tools = [{"type": "function", "function": function} for function in functions] or self._omit
        self._messages: list[Any] = [{"role": "system", "content": "Be brief."}]
        self._ids: list[str] = []

    def say(self, text: str) -> None:
        self._messages.append({"role": "user", "content": text})

    def answer(self, *results: str) -> None:
        for id, result in zip(self._ids, results, strict=True):
            self._messages.append({"role": "tool", "tool_call_id": id, "content": result})

    def hear(self, stream: bool) -> Heard:
        create, pieces = self.client.chat.completions.create, 1
        wanted: dict[str, Any] = {"model": "stand-in", "messages": self._messages, "tools": self._tools}
        if stream:
            state, pieces = self._state(), 0
            with create(**wanted, stream=True, stream_options={"include_usage": True}) as chunks:
                for chunk in chunks:
                    state.handle_chunk(chunk)
                    pieces += bool(chunk.choices and chunk.choices[0].delta.content)
            done = state.current_completion_snapshot  # the final one takes a stop for length as an error
        else:
            done = create(**wanted)
        choice = done.choices[0]
        self._messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
        calls = choice.message.tool_calls or []
        self._ids = [call.id for call in calls]
        return Heard(
            choice.message.content or "",
            [(call.function.name, json.loads(call.function.arguments)) for call in calls],
            choice.finish_reason,
            (done.usage.prompt_tokens, done.usage.completion_tokens),
            getattr(choice.message, "reasoning_content", None) or "",
            pieces,
        )

    def models(self) -> list[str]:
        return [model.id for model in self.client.models.list()]

    def close(self) -> None:
        self.client.close()


class Anthropic:
    def __init__(self, model: StandIn) -> None:
        import anthropic

        self.client = anthropic.Anthropic(base_url=model.urls["anthropic"], api_key=KEY, max_retries=0, timeout=20)
        self.refusals = {401: anthropic.AuthenticationError, 429: anthropic.RateLimitError}
        self.refusals[400] = anthropic.BadRequestError
        self._omit = anthropic.omit
        self.begin()

    def begin(self, *tools: str) -> None:
        self._tools = [{"name": name, "description": ABOUT, "input_schema": SCHEMA} for name in tools] or self._omit
        self._messages: list[Any] = []
        self._ids: list[str] = []

    def say(self, text: str) -> None:
        self._messages.append({"role": "user", "content": text})

    def answer(self, *results: str) -> None:
        pairs = zip(self._ids, results, strict=True)
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": result} for id, result in pairs]
        self._messages.append({"role": "user", "content": blocks})

    def hear(self, stream: bool) -> Heard:
        wanted: dict[str, Any] = {"model": "stand-in", "max_tokens": 500, "system": "Be brief.", "tools": self._tools}
        wanted["messages"], pieces = self._messages, 1
        if stream:
            with self.client.messages.stream(**wanted) as events:
                pieces = sum(1 for _ in events.text_stream)
                done = events.get_final_message()
        else:
            done = self.client.messages.create(**wanted)
        kept = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in done.content]
        self._messages.append({"role": "assistant", "content": kept})
        uses = [block for block in done.content if block.type == "tool_use"]
        self._ids = [block.id for block in uses]
        return Heard(
            "".join(block.text for block in done.content if block.type == "text"),
            [(block.name, block.input) for block in uses],
            str(done.stop_reason),
            (done.usage.input_tokens, done.usage.output_tokens),
            "".join(block.thinking for block in done.content if block.type == "thinking"),
            pieces,
        )

    def models(self) -> list[str]:
        return [model.id for model in self.client.models.list()]

    def close(self) -> None:
        self.client.close()


class Gemini:
    def __init__(self, model: StandIn) -> None:
        with warnings.catch_warnings():  # what it imports deprecates things
            warnings.simplefilter("ignore", DeprecationWarning)
            from google import genai
            from google.genai import errors, types

        options = types.HttpOptions(
            base_url=model.urls["gemini"], timeout=20_000, retry_options=types.HttpRetryOptions(attempts=1)
        )
        self.client, self._types = genai.Client(api_key=KEY, http_options=options), types
        self.refusals = dict.fromkeys((400, 401, 403, 429), errors.ClientError)
        self.begin()

    def begin(self, *tools: str) -> None:
        types = self._types
        functions = [types.FunctionDeclaration(name=n, description=ABOUT, parameters_json_schema=SCHEMA) for n in tools]
        self._config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[types.Tool(function_declarations=functions)] if tools else None,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        self._contents: list[Any] = []
        self._calls: list[Any] = []

    def say(self, text: str) -> None:
        self._contents.append(self._types.Content(role="user", parts=[self._types.Part(text=text)]))

    def answer(self, *results: str) -> None:
        parts = [
            self._types.Part.from_function_response(name=call.name, response={"result": result})
            for call, result in zip(self._calls, results, strict=True)
        ]
        self._contents.append(self._types.Content(role="user", parts=parts))

    def hear(self, stream: bool) -> Heard:
        wanted: dict[str, Any] = {"model": "stand-in", "contents": self._contents, "config": self._config}
        models = self.client.models
        chunks = list(models.generate_content_stream(**wanted)) if stream else [models.generate_content(**wanted)]
        candidates = [chunk.candidates[0] for chunk in chunks]
        parts = [part for candidate in candidates for part in candidate.content.parts or []]
        texts = [part.text for part in parts if part.text and not part.thought]
        self._calls = [part.function_call for part in parts if part.function_call]
        kept = [part for part in parts if part.function_call or part.text]
        self._contents.append(self._types.Content(role="model", parts=kept))
        used = chunks[-1].usage_metadata
        return Heard(
            "".join(texts),
            [(call.name, call.args) for call in self._calls],
            candidates[-1].finish_reason.value,
            (used.prompt_token_count, used.candidates_token_count),
            "".join(part.text for part in parts if part.text and part.thought),
            len(texts),
        )

    def models(self) -> list[str]:
        return [str(model.name) for model in self.client.models.list()]

    def close(self) -> None:
        self.client.close()


class Ollama:
    def __init__(self, model: StandIn) -> None:
        import ollama

        self.client = ollama.Client(host=model.urls["ollama"], timeout=20)
        self.refusals = dict.fromkeys((400, 401, 404, 429, 500), ollama.ResponseError)
        self.begin()

    def begin(self, *tools: str) -> None:
        functions = [{"name": name, "description": ABOUT, "parameters": SCHEMA} for name in tools]
        self._tools = [{"type": "function", "function": function} for function in functions]
        self._messages: list[Any] = []
        self._names: list[str] = []

    def say(self, text: str) -> None:
        self._messages.append({"role": "user", "content": text})

    def answer(self, *results: str) -> None:
        for name, result in zip(self._names, results, strict=True):
            self._messages.append({"role": "tool", "tool_name": name, "content": result})

    def hear(self, stream: bool) -> Heard:
        wanted: dict[str, Any] = {"model": "stand-in", "messages": self._messages, "tools": self._tools}
        chunks = list(self.client.chat(**wanted, stream=True)) if stream else [self.client.chat(**wanted)]
        texts = [chunk.message.content for chunk in chunks if chunk.message.content]
        calls = [call for chunk in chunks for call in chunk.message.tool_calls or []]
        self._messages.append({"role": "assistant", "content": "".join(texts), "tool_calls": calls})
        self._names = [call.function.name for call in calls]
        last = chunks[-1]
        return Heard(
            "".join(texts),
            [(call.function.name, dict(call.function.arguments)) for call in calls],
            str(last.done_reason),
            (last.prompt_eval_count or 0, last.eval_count or 0),
            "".join(chunk.message.thinking or "" for chunk in chunks),
            len(texts),
        )

    def models(self) -> list[str]:
        return [str(model.model) for model in self.client.list().models]

    def close(self) -> None:
        self.client.close()


DRIVERS = {"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini, "ollama": Ollama}


@contextmanager
def driven(provider: str, model: StandIn) -> Iterator[Driver]:
    driver = DRIVERS[provider](model)
    try:
        yield driver
    finally:
        driver.close()
