"""`HttpTool` is the handler of an HTTP tool: arguments in, a value out, by one request or by several."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any, NamedTuple

from onetool.core.context import CallContext, current_call
from onetool.core.errors import ToolFailure
from onetool.http.auth import Authenticator
from onetool.http.client import HttpContext
from onetool.http.definition import HttpImpl, ToolLimits, all_sending_seconds, total_seconds
from onetool.http.placeholders import Lookup, TemplateError
from onetool.http.preview import PreviewRequest, previewed
from onetool.http.steps import CredentialMask, StepCondition, failed_step, stand_ins, step_names, values_for
from onetool.http.tool_request import ToolRequest
from onetool.http.url import Url

TELLING = 0.1  # seconds before the end of a call, in which it says what was done until then


class _Step(NamedTuple):
    name: str
    request: ToolRequest
    condition: StepCondition | None
    when: str | None = None  # the text of it


class HttpTool:
    """`await tool(city="Kyiv")`. Making one raises TemplateError, with a pointer into httpImpl, for what can't work."""

    def __init__(
        self,
        impl: HttpImpl,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        context: Callable[[], HttpContext],
        bundle: str | None = None,
    ) -> None:
        """`bundle` is the id of the bundle that the tool is in: a person's login is for one bundle."""
        self.impl = impl
        self._context = context
        if impl.request is None:
            self._steps = _made_steps(impl, arg_schema, limits, bundle)
        else:
            self._steps = (_Step("", ToolRequest(impl.steps[0], arg_schema, limits, bundle=bundle), None),)
        self._alone = None if impl.request is None else self._steps[0].request
        self._total = all_sending_seconds(impl, limits)
        self.timeout = total_seconds(impl, limits)
        self.secrets = frozenset[str]().union(*(step.request.secrets for step in self._steps))

    @property
    def fixed_urls(self) -> list[Url]:
        """Where its requests go to, as far as the host, where that does not depend on the call."""
        return [url for step in self._steps if (url := step.request.fixed_url) is not None]

    def preview(self, args: Mapping[str, Any]) -> list[PreviewRequest]:
        """What a call with these arguments would send. BadArguments or ToolFailure when a value does not fit."""
        context, found = self._context(), list[PreviewRequest]()
        for step in self._steps:
            with _named(step.name, ()) if step.name else nullcontext():
                found.append(previewed(step.request, args, context, step.name, step.when))
        return found

    @property
    def authenticators(self) -> list[Authenticator]:
        """What signs its requests."""
        return [step.request.auth for step in self._steps if step.request.auth is not None]

    async def __call__(self, **args: Any) -> Any:
        call = current_call.get()
        environment = None if call is None else call.environment
        context = self._context()
        secret = context.secret or (_no_secret if environment is None else environment.secret)
        if environment is not None:
            context = context._replace(redact=lambda value: environment.redact(value, args))
        if self._alone is not None:
            return await self._alone.send(args, secret, context, call.progress if call else None, self._total)
        return await self._send_all(args, secret, context, call)

    async def _send_all(
        self, args: Mapping[str, Any], secret: Lookup, context: HttpContext, call: CallContext | None
    ) -> Any:
        """One after the other. The value of the last that was sent; None if none was."""
        self._rehearse(args, secret, context)
        until = monotonic() + self._seconds_for(call)
        mask = CredentialMask()
        within = context._replace(redact=lambda value: mask(context.redact(value)))
        values: dict[str, Any] = {}
        done: list[str] = []
        result: Any = None
        for step in self._steps:
            is_last = step is self._steps[-1]
            with _named(step.name, done):
                if step.condition is not None and not await step.condition.holds(args, values):
                    values[step.name] = None
                    continue
                given = values_for(step.request.step_values, values)
                mask.add(step.request.credentials, given)
                tell = call.progress if call is not None and is_last else None
                seconds = max(until - monotonic(), 0.001)
                clean = None if is_last else context.redact
                result = await step.request.send({**args, **given}, secret, within, tell, seconds, clean)
            if not is_last:  # a secret that a server sends back goes no further
                values[step.name] = result = await asyncio.to_thread(context.redact, result)
            done.append(step.name)
        return mask(result)

    def _rehearse(self, args: Mapping[str, Any], secret: Lookup, context: HttpContext) -> None:
        """Before the first is sent: what the others certainly lack. Half of a sequence is worse than none of it."""
        for step in self._steps:
            if step.condition is None:
                with _named(step.name, ()):
                    request, _ = step.request.prepared({**args, **stand_ins(step.request.step_values)}, secret, context)
                    context.hosts.check(request.url)

    def _seconds_for(self, call: CallContext | None) -> float:
        """Seconds for all steps. They end a moment before the call has to: else nobody would say what was done."""
        if call is None:
            return self._total
        left = call.left()
        return min(self._total, left - min(TELLING, left / 10))


def tool_to_inspect(
    impl: HttpImpl, arg_schema: Mapping[str, Any], limits: ToolLimits | None = None, bundle: str | None = None
) -> HttpTool:
    """An HTTP tool to look at: it can't be called. Raises TemplateError for what can't work."""
    return HttpTool(impl, arg_schema, limits or ToolLimits(), _never_called, bundle)


def _never_called() -> HttpContext:
    raise AssertionError("this tool is there to be looked at, and not to be called")


@contextmanager
def _named(name: str, done: "list[str] | tuple[str, ...]") -> Iterator[None]:
    """A failure in here names the step, and those that were done."""
    try:
        yield
    except ToolFailure as failure:
        raise failed_step(failure, name, done) from None


def _made_steps(
    impl: HttpImpl, arg_schema: Mapping[str, Any], limits: ToolLimits, bundle: str | None
) -> tuple[_Step, ...]:
    made: list[_Step] = []
    for number, (step, names) in enumerate(zip(impl.steps, step_names(impl.steps, arg_schema), strict=True)):
        try:
            condition = StepCondition(step.when, arg_schema, names) if step.when else None
            made.append(_Step(step.name, ToolRequest(step, arg_schema, limits, names, bundle), condition, step.when))
        except TemplateError as error:
            raise TemplateError(str(error), f"/requests/{number}{error.pointer}") from None
    return tuple(made)


def _no_secret(_: str) -> None:
    return None
