"""`HttpTool` is the handler of an HTTP tool: it turns arguments into a value with one or several requests.

Each of several requests is a step with a name. A step uses the values of earlier steps as `${steps.NAME.…}`. These
names are checked when the tool is defined.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any, NamedTuple

from onetool.core.context import CallContext, current_call
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.redaction import mask_values
from onetool.http.auth import Authenticator, encoded_parts
from onetool.http.client import HttpContext
from onetool.http.definition import HttpImpl, RequestStep, ToolLimits, all_sending_seconds, total_seconds
from onetool.http.errors import UnmetNeedError, with_message
from onetool.http.files import load_files
from onetool.http.placeholders import (
    STEPS,
    Lookup,
    Placeholder,
    StepNames,
    TemplateError,
    TemplateErrors,
    argument_names,
)
from onetool.http.preview import PreviewRequest, previewed
from onetool.http.tool_request import ToolRequest
from onetool.http.upstream import OnResponse, ShowResponse
from onetool.http.url import Url

MIN_CREDENTIAL = 4  # characters: shorter values are too common to be masked everywhere

REPORT_SECONDS = 0.1  # reserved at the end of a call for reporting which steps were done


def step_names(steps: Sequence[RequestStep], arg_schema: Any) -> list[StepNames]:
    """Return the names that each step sees. Raise TemplateError for invalid names."""
    names = tuple(step.name for step in steps)
    for number, name in enumerate(names):
        pointer = f"/requests/{number}/name"
        if not name.isidentifier():
            raise TemplateError(f"{name!r} is not a name: that is letters, digits and `_`, and no digit first", pointer)
        if name in names[:number]:
            raise TemplateError(f"two steps are called `{name}`: give each its own name", pointer)
    for name in sorted(argument_names(arg_schema)):
        if name.partition(".")[0] == STEPS:
            what = (
                f"argSchema has an argument {name!r}, and `${{{STEPS}.…}}` stands for the results of earlier requests"
            )
            raise TemplateError(f"{what}: give the argument another name, like `step_list`", "/requests")
    return [StepNames(names[:number], names[number:]) for number in range(len(names))]


def values_for(placeholders: Iterable[Placeholder], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of placeholders by name. A missing part of a step's value is absent, like an argument."""
    found: dict[str, Any] = {}
    for placeholder in placeholders:
        value: Any = values
        for part in placeholder.name.split(".")[1:]:
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list | tuple) and part.isdecimal() and len(part) < 10 and int(part) < len(value):
                value = value[int(part)]
            else:
                break
        else:
            found[placeholder.name] = value
    return found


class CredentialMask:
    """A mask for values of steps that later steps use as credentials: a server may echo them."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, placeholders: Iterable[Placeholder], values: Mapping[str, Any]) -> None:
        for placeholder in placeholders:
            value = values.get(placeholder.name)
            if isinstance(value, str) and len(value) >= MIN_CREDENTIAL:
                forms = encoded_parts(value) if len(value) > 2 * MIN_CREDENTIAL else []
                self._texts |= dict.fromkeys([value, *forms])

    def __call__(self, value: Any) -> Any:
        return mask_values(value, self._texts) if self._texts else value


class _Step(NamedTuple):
    name: str
    request: ToolRequest


class HttpTool:
    """The handler of an HTTP tool: `await tool(city="Kyiv")`. Raises TemplateError on creation if it can't work."""

    def __init__(
        self,
        impl: HttpImpl,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        context: Callable[[], HttpContext],
        bundle: str | None = None,
        on_response: OnResponse | None = None,
    ) -> None:
        """Create a tool. `bundle` is the ID of its bundle, to which a user's login belongs.

        `on_response` makes this a trial: it receives each response, and no result is stored.
        """
        self.impl = impl
        self._on_response = on_response
        self._context = context
        if impl.request is not None:
            self._alone = ToolRequest(impl.steps[0], arg_schema, limits, bundle=bundle)
            self._steps = [_Step("", self._alone)]
        else:
            self._alone = None
            self._steps = list[_Step]()
            errors = TemplateErrors()
            for number, (step, names) in enumerate(zip(impl.steps, step_names(impl.steps, arg_schema), strict=True)):
                with errors.part(f"/requests/{number}"):
                    self._steps.append(_Step(step.name, ToolRequest(step, arg_schema, limits, names, bundle)))
            errors.raise_all()
        self._total = all_sending_seconds(impl, limits)
        self.timeout = total_seconds(impl, limits)
        self.secrets = frozenset[str]().union(*(step.request.secrets for step in self._steps))
        files = frozenset[str]().union(*(step.request.files for step in self._steps))
        texts = frozenset[str]().union(*(step.request.texts for step in self._steps))
        if name := min(files & texts, default=None):
            pointer = "/requests" if impl.request is None else "/request"
            raise TemplateError(f"`${{{name}}}` is a file, so it can't be part of a string", pointer)
        self._files = sorted(files)
        self._max_request_bytes = limits.max_request_bytes

    @property
    def fixed_urls(self) -> list[Url]:
        """The fixed URLs of the requests, up to the host."""
        return [url for step in self._steps if (url := step.request.fixed_url) is not None]

    @property
    def destinations(self) -> Iterator[tuple[str, Url | None]]:
        """Each secret with a URL it is sent to, up to the host. None means that the host depends on the call."""
        for step in self._steps:
            for names, url in step.request.destinations:
                yield from ((name, url) for name in sorted(names))

    def preview(self, args: Mapping[str, Any]) -> list[PreviewRequest]:
        """Return the requests that a call would send. Raise BadArguments or ToolFailure for an invalid value."""
        context, requests = self._context(), list[PreviewRequest]()
        for step in self._steps:
            with _named(step.name, ()) if step.name else nullcontext():
                requests.append(previewed(step.request, args, context, step.name))
        return requests

    @property
    def authenticators(self) -> list[Authenticator]:
        return [step.request.auth for step in self._steps if step.request.auth is not None]

    async def __call__(self, **args: Any) -> Any:
        context = self._context()
        try:
            try:
                return await self._call(args, context)
            except UnmetNeedError:  # the host or secret may have been added a moment ago
                newer = None if context.look_again is None else await context.look_again()
                if newer is None:
                    raise
                context = newer
                return await self._call(args, context)
        except ToolFailure as failure:
            # Add all other needs of the tool, and the origins of a secret to its command.
            needs = context.needs(self) if failure.needs else ()
            for need in failure.needs:
                known = next((other for other in needs if (other.host, other.secret) == (need.host, need.secret)), need)
                failure.hints = tuple(hint.replace(need.command, known.command) for hint in failure.hints)
                needs = needs if known in needs else (*needs, need)
            failure.needs = tuple(needs)
            raise

    async def _call(self, args: dict[str, Any], context: HttpContext) -> Any:
        call = current_call.get()
        environment = None if call is None else call.environment
        secret = context.secret or ((lambda _: None) if environment is None else environment.secret)
        if environment is not None:
            context = context._replace(redact=lambda value: environment.redact(value, args))
        shows: list[ShowResponse] = []
        if (on_response := self._on_response) is not None:
            context = context._replace(on_response=shows.append, store_result=lambda _: _NotStored())
        try:
            loaded = args
            if self._files:
                loaded = await load_files(self._files, args, context.files, self._max_request_bytes, context.redact)
            if self._alone is not None:
                return await self._alone.send(loaded, secret, context, call.progress if call else None, self._total)
            return await self._send_all(loaded, secret, context, call)
        finally:  # not earlier: only now all credentials from steps are known and masked
            if on_response is not None:
                for show in shows:
                    on_response(await asyncio.to_thread(show))

    async def _send_all(
        self, args: Mapping[str, Any], secret: Lookup, context: HttpContext, call: CallContext | None
    ) -> Any:
        """Send the requests in sequence, and return the value of the last one."""
        seconds = self._total
        if call is not None:  # steps end a moment before the call's deadline, so that there is time to report them
            left = call.left()
            seconds = min(seconds, left - min(REPORT_SECONDS, left / 10))
        until = monotonic() + seconds
        mask = CredentialMask()
        masking = context._replace(redact=lambda value: mask(context.redact(value)))
        values: dict[str, Any] = {}
        done: list[str] = []
        result: Any = None
        try:
            for step in self._steps:
                is_last = step is self._steps[-1]
                with _named(step.name, done):
                    step_values = values_for(step.request.step_values, values)
                    mask.add(step.request.credentials, step_values)
                    on_event = call.progress if call is not None and is_last else None
                    seconds = max(until - monotonic(), 0.001)
                    clean = None if is_last else context.redact
                    arguments = {**args, **step_values}
                    result = await step.request.send(arguments, secret, masking, on_event, seconds, clean)
                if not is_last:  # don't pass on a secret that a server echoed
                    values[step.name] = result = await asyncio.to_thread(context.redact, result)
                done.append(step.name)
        finally:  # including the credentials of steps that were not sent
            for step in self._steps:
                mask.add(step.request.credentials, values_for(step.request.step_values, values))
        return mask(result)


class _NotStored(NamedTuple):
    """A placeholder for a stored result in a trial."""

    handle: str = "not-stored"


def tool_to_inspect(impl: HttpImpl, arg_schema: Mapping[str, Any], bundle: str | None = None) -> HttpTool:
    """Return an HTTP tool for inspection: it can't be called. Raise TemplateError if it can't work."""
    return HttpTool(impl, arg_schema, ToolLimits(), _never_called, bundle)


def _never_called() -> HttpContext:
    raise AssertionError("this tool is for inspection only and can't be called")


@contextmanager
def _named(name: str, done: "list[str] | tuple[str, ...]") -> Iterator[None]:
    """Name this step and the steps done in failures, which end the call.

    If no step was done, invalid arguments stay BadArguments.
    """
    try:
        yield
    except ToolFailure as failure:
        before = f"done: {', '.join(f'`{step}`' for step in done)}" if done else "no step was done before it"
        message = f"step `{name}` failed: {failure}; {before}"
        if isinstance(failure, BadArguments) and not done:
            error = BadArguments(message, failure.reason, failure.hints)
            error.argument = failure.argument
            raise error from None
        if isinstance(failure, UnmetNeedError) and not done:
            unmet = UnmetNeedError(message, failure.hints, failure.needs)
            unmet.reason = failure.reason
            raise unmet from None
        raise with_message(failure, message) from None
