"""Running what may ask its caller, or take long: tools, prompts and resources."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onetool.core.caller import current_caller
from onetool.interfaces.mcp.caller import ClientCaller
from onetool.interfaces.mcp.errands import Errand, Errands, binding_of
from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.revisions import TASKS
from onetool.interfaces.mcp.wire import MISSING_CAPABILITY, Fault

ASKING = ("elicitation", "sampling", "roots")

Work = Callable[[ClientCaller], Awaitable[dict[str, Any]]]


async def carried_out(
    request: Request, work: Work, errands: Errands, task_after: float | None = None
) -> dict[str, Any]:
    """The result of the work; or the questions that it has, or the task that it became."""
    client = request.client
    if task_after is not None and not client.can(TASKS):
        task_after = None
    can_ask = bool(client.capabilities) and any(map(client.can, ASKING))
    can_pause = task_after is not None or can_ask or "requestState" in request.params
    if not client.is_modern or not can_pause:
        return await _with_caller(ClientCaller(client, request.link, request.progress_token), work)
    errand = _begun(request, work, errands)
    try:
        if not await errand.turn(task_after):
            if errands.has_room:
                errand.caller.link = None  # what it tells from now on belongs to no request
                return errands.as_task(errand)
            await errand.turn()
    except asyncio.CancelledError:
        errand.cancel()
        raise
    if errand.is_done:
        return errand.result()
    state = errands.park(errand)
    errand.caller.link = None
    return {"resultType": "input_required", "inputRequests": errand.questions(), "requestState": state}


def _begun(request: Request, work: Work, errands: Errands) -> Errand:
    """A new errand, or the one that this request brings answers to."""
    answers = request.param("inputResponses", dict, {})
    binding = binding_of(request.method, request.params)
    if "requestState" in request.params:
        errand = errands.resume(request.params["requestState"], request.client, binding)
        errand.caller.client, errand.caller.link = request.client, request.link
        errand.caller.progress_token = request.progress_token
        errand.give(answers)
        return errand
    caller = ClientCaller(request.client, request.link, request.progress_token, lambda question: errand.ask(question))
    errand = Errand(caller, binding, answers)
    errand.start(_with_caller(caller, work))
    return errand


async def _with_caller(caller: ClientCaller, work: Work) -> dict[str, Any]:
    token = current_caller.set(caller)
    try:
        return await work(caller)
    finally:
        current_caller.reset(token)
        caller.link = None


def lacking(caller: ClientCaller) -> Fault | None:
    """What to say when a call failed for something that its client can't do."""
    error = caller.lacking
    if error is None or not caller.client.is_modern:
        return None
    return missing(error.capability, str(error))


def missing(capability: str, message: str) -> Fault:
    wanted = {"extensions": {capability: {}}} if "/" in capability else {capability: {}}
    return Fault(MISSING_CAPABILITY, message, {"requiredCapabilities": wanted})
