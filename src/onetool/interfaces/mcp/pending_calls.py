"""Calls that pause for an answer from the client, or that continue after their request as tasks.

Since 2026-07-28 a server asks by responding: the response to a request has the questions, and the client sends the
request again with the answers. The call waits here in the middle of its handler, so that nothing runs twice. The
client's `requestState` is signed. It is valid once, for the same client and the same request.

The same answer, sent again, gets the same outcome: a client may have lost the response.

A task (an extension of the protocol) is a pending call with an id that the client polls.
"""

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from secrets import token_hex
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.call import Declined, Question, current_caller
from onetool.core.errors import ToolFailure
from onetool.core.fair_shares import FairShares
from onetool.core.mcp_protocol import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY, TASKS, JsonRpcError
from onetool.core.principal import Principal, is_admitted
from onetool.core.signed import sign, verify
from onetool.core.text import utc_text_ms
from onetool.interfaces.mcp.client import (
    BadAnswerError,
    ClientCaller,
    McpRequest,
    RemoteClient,
    read_answer,
    request_for,
)

if TYPE_CHECKING:
    from onetool.cluster.shared_requests import SharedRequests

log = logging.getLogger("onetool.mcp")
MAX_PENDING = 64  # calls that are not done; each may hold a worker of the sandbox
FULL = f"{MAX_PENDING} calls are already waiting for an answer or running as tasks: try again later"
MAX_DONE = 1000  # finished tasks whose results are kept
PARKED_SECONDS = 600.0  # to wait for an answer …
EVICTABLE_SECONDS = 60.0  # … if all places are taken
POLL_MS = 500
_ROUND = 4  # bytes of the round in `requestState`
LOOP_TURNS = 3  # of the loop, after which concurrent questions of a call are complete

Result = dict[str, Any]
LOOK_SECONDS = 1.0  # between two checks whether the callers still have access


class PendingQuestion(msgspec.Struct, frozen=True):
    question: Question
    answer: "asyncio.Future[Any]"


class PendingCall:
    """A call that can pause. `caller` is that of the latest request; `asks` has the unanswered questions."""

    work: "asyncio.Task[Result]"

    def __init__(self, caller: ClientCaller, binding: bytes, answers: Mapping[str, Any], replica: str = "") -> None:
        self.id = replica + token_hex(16)
        self.caller = caller
        self.binding = binding
        self.round = 0
        self.asks: dict[str, PendingQuestion] = {}
        self.created = self.updated = _now()
        self.expires: asyncio.TimerHandle | None = None
        self.is_kept = 0.0
        self.on_change: Callable[[], None] | None = None  # called when the status of a task has changed
        self.is_admitted = is_admitted.get()
        self._principal = caller.client.principal
        self._loop = asyncio.get_running_loop()
        self.answers = dict(answers)  # sent with the first request: a client may know the questions
        self._paused: asyncio.Future[None] | None = None

    def start(self, work: Coroutine[Any, Any, Result]) -> None:
        self.work = self._loop.create_task(work)
        self.work.add_done_callback(self._ended)

    async def wait_for_pause(self, seconds: float | None = None) -> bool:
        """Wait until the call is done or has a question. Return False after `seconds`."""
        if self.work.done():
            return True
        self._paused = self._loop.create_future()
        self._settle_soon()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._paused, seconds)
            return True
        return False

    @property
    def is_done(self) -> bool:
        return self.work.done()

    def result(self) -> Result:
        """Return the result of the call. Raises JsonRpcError."""
        try:
            return self.work.result()
        except asyncio.CancelledError:
            raise JsonRpcError(INTERNAL_ERROR, "the call was cancelled") from None

    def cancel(self) -> None:
        self.work.cancel()

    def renew(self, principal: Principal) -> bool:
        """Return whether the call may continue for the client of a new request: another token needs the same rights."""
        before = self._principal
        if (principal.role, principal.tools) != (before.role, before.tools):
            return False
        self.is_admitted = is_admitted.get()
        return True

    # Questions

    async def ask(self, question: Question) -> Any:
        """Ask the client on behalf of the handler, and wait for the answer."""
        if question.key in self.answers:
            with suppress(BadAnswerError):
                return read_answer(question, self.answers.pop(question.key))
        if question.key in self.asks:
            raise ToolFailure(f"two open questions have the key {question.key!r}: use a different key for each")
        asking = self.asks[question.key] = PendingQuestion(question, self._loop.create_future())
        self.updated = _now()
        self._settle_soon()
        try:
            return await asking.answer
        finally:
            self.asks.pop(question.key, None)

    def take_answers(self, answers: Mapping[str, Any]) -> None:
        """Accept answers from the client. Ignores invalid answers and those without a question."""
        for key, raw in answers.items():
            asking = self.asks.get(key)
            if asking is None or asking.answer.done():
                continue
            try:
                value = read_answer(asking.question, raw)
            except BadAnswerError:
                continue
            except (Declined, ToolFailure) as failure:
                asking.answer.set_exception(failure)
            else:
                asking.answer.set_result(value)
            del self.asks[key]
        self._changed()

    def questions(self) -> dict[str, Any]:
        return {key: request_for(asking.question) for key, asking in self.asks.items()}

    def _settle_soon(self, turns: int = LOOP_TURNS) -> None:
        """Wait for some iterations of the event loop, so that questions asked concurrently are sent together."""
        if turns:
            self._loop.call_soon(self._settle_soon, turns - 1)
        elif self.asks:
            self._changed()
            self._wake()

    def _changed(self) -> None:
        self.updated = _now()
        if self.on_change is not None:
            self.on_change()

    def _ended(self, work: "asyncio.Task[Result]") -> None:
        self.answers.clear()
        error = None if work.cancelled() else work.exception()  # reported when a client asks
        if error is not None and not isinstance(error, JsonRpcError):
            log.error("a call failed", exc_info=error)
        self._changed()
        self._wake()

    def _wake(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)

    # As a task

    def task(self, ttl_ms: int) -> Result:
        """Return the task with its questions, result or error."""
        task = self.summary(ttl_ms)
        if task["status"] == "input_required":
            task["inputRequests"] = self.questions()
        elif task["status"] == "completed":
            task["result"] = self.result()
        elif task["status"] == "failed":
            error = self.work.exception()
            failed = error if isinstance(error, JsonRpcError) else JsonRpcError(INTERNAL_ERROR, "internal error")
            task["error"] = failed.error()
        return task

    def summary(self, ttl_ms: int) -> Result:
        if not self.work.done():
            status = "input_required" if self.asks else "working"
        elif self.work.cancelled():
            status = "cancelled"
        else:
            status = "completed" if self.work.exception() is None else "failed"
        return {
            "taskId": self.id,
            "status": status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": ttl_ms,
            "pollIntervalMs": POLL_MS,
            **({"statusMessage": self.caller.made} if self.caller.made else {}),
        }


class PendingCalls:
    """The calls that wait for an answer, and tasks."""

    def __init__(self, task_seconds: float, shared: "SharedRequests | None" = None) -> None:
        """Keep calls. Ids begin with the id of the replica; all replicas share the key for `requestState`."""
        self.replica = "" if shared is None else shared.id
        self._key = os.urandom(32) if shared is None else shared.key
        self._shared_tasks = None if shared is None else shared.tasks
        self._task_seconds = task_seconds
        self._is_closed = False
        self._by_id: dict[str, PendingCall] = {}
        self._tasks: set[str] = set()
        self._asking: Counter[str] = Counter()  # by caller
        self._outcomes: dict[str, asyncio.Future[Result]] = {}  # of the last answers
        self._look: asyncio.TimerHandle | None = None

    @property
    def ttl_ms(self) -> int:
        return int(self._task_seconds * 1000)

    def has_room_for(self, principal: Principal) -> bool:
        """Return whether there is a place for a call of the principal."""
        return FairShares(MAX_PENDING, self._held()).has_room(principal.caller)

    def _held(self) -> Counter[str]:
        """Return the number of places by caller."""
        pending = (one.caller.client.principal.caller for one in self._by_id.values() if not one.is_done)
        return self._asking + Counter(pending)

    @contextmanager
    def asking(self, principal: Principal) -> Generator[None]:
        """Count a question to a client with a session against the limit of pending calls."""
        if not self.has_room_for(principal):
            raise JsonRpcError(INTERNAL_ERROR, FULL)
        self._asking[principal.caller] += 1
        try:
            yield
        finally:
            self._asking -= Counter([principal.caller])

    def keep(self, pending: PendingCall) -> str:
        """Keep the call until the client answers; return the `requestState` for the client."""
        pending.answers.clear()  # answers of the first request are only for its questions
        principal = pending.caller.client.principal
        if not self.has_room_for(principal) and not (self._make_room() and self.has_room_for(principal)):
            pending.cancel()
            raise JsonRpcError(INTERNAL_ERROR, FULL)
        self._keep_until(pending, PARKED_SECONDS)
        return sign(self._key, bytes.fromhex(pending.id) + pending.round.to_bytes(_ROUND))

    def resume(self, state: Any, client: RemoteClient, binding: bytes) -> PendingCall:
        """Return the pending call that continues with this request. Raises JsonRpcError."""
        data = verify(self._key, state) if isinstance(state, str) else None
        if data is None:
            raise JsonRpcError(INVALID_PARAMS, "Invalid requestState: send it back unchanged")
        pending = self._by_id.get(data[:-_ROUND].hex())
        if pending is None or pending.caller.owner != client.owner:
            raise JsonRpcError(INVALID_PARAMS, "requestState has expired: send the request again without it")
        if pending.round != int.from_bytes(data[-_ROUND:]):
            raise JsonRpcError(INVALID_PARAMS, "requestState was used already: it is valid for one answer")
        if pending.binding != binding:
            raise JsonRpcError(INVALID_PARAMS, "requestState belongs to another request: send the same params with it")
        if not pending.renew(client.principal):
            self._end(pending.id)
            raise JsonRpcError(INVALID_PARAMS, "requestState has expired: send the request again without it")
        pending.round += 1
        self._drop(pending.id)
        return pending

    def as_task(self, pending: PendingCall) -> Result:
        """Turn the call into a task, which the client polls by its id."""
        done = [id for id, pending in self._by_id.items() if pending.is_done]
        for id in done[: max(0, len(done) - MAX_DONE)]:
            self._end(id)
        self._keep_until(pending, self._task_seconds)
        self._tasks.add(pending.id)
        return {"resultType": "task", **pending.summary(self.ttl_ms)}

    async def share(self, pending: PendingCall) -> None:
        """Store the task for the other processes, now and whenever its status changes."""
        if (shared := self._shared_tasks) is None:
            return

        def changed() -> None:
            if not self._is_closed:  # otherwise it ends with this process, and `give_up` has stored that
                shared.keep(pending.id, pending.caller.owner, self._task_seconds, pending.task(self.ttl_ms))

        pending.on_change = changed
        changed()
        await shared.stored(pending.id)

    async def stored(self, pending: PendingCall) -> None:
        """Wait until the other processes can see the status of a task, which has just changed."""
        if self._shared_tasks is not None:
            await asyncio.sleep(0)  # a cancellation changes it in the next turn of the loop
            await self._shared_tasks.stored(pending.id)

    def outcome_of(self, key: str) -> "asyncio.Future[Result] | None":
        """Return the outcome of an answer that was sent before."""
        return self._outcomes.get(key)

    def begin_answer(self, key: str) -> "asyncio.Future[Result]":
        """Return a future for the outcome of an answer, which is kept for a client that sends it again."""
        outcome = self._outcomes[key] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(lambda _: outcome.cancelled() or outcome.exception())  # maybe nobody asks again
        while len(self._outcomes) > MAX_PENDING:
            self._outcomes.pop(next(iter(self._outcomes)))
        return outcome

    def task(self, id: Any, client: RemoteClient) -> PendingCall:
        pending = self._by_id.get(id) if isinstance(id, str) and id in self._tasks else None
        if pending is None or pending.caller.owner != client.owner:
            raise JsonRpcError(INVALID_PARAMS, "taskId: unknown or expired task")
        pending.renew(client.principal)
        return pending

    @property
    def is_busy(self) -> bool:
        """Whether calls wait for an answer or continue as tasks."""
        return any(not pending.is_done for pending in self._by_id.values())

    async def give_up(self) -> None:
        """End all calls, and store the progress of unfinished tasks for the other replicas."""
        self._is_closed = True
        if (shared := self._shared_tasks) is not None:
            for pending in self._by_id.values():
                if not pending.is_done:
                    calls = pending.caller.calls
                    counts = "calls done: 0, failed: 0, not known: 1" if calls is None else calls.counts()
                    error = JsonRpcError(INTERNAL_ERROR, f"the server stopped before this was done; {counts}")
                    task = {**pending.summary(self.ttl_ms), "status": "failed", "error": error.error()}
                    shared.keep(pending.id, pending.caller.owner, self._task_seconds, task)
        self.close()
        if shared is not None:
            await shared.flush()

    def close(self) -> None:
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
        for id in list(self._by_id):
            self._end(id)

    def _end_refused(self) -> None:
        """End the calls of callers who lost access. Repeats while there are calls."""
        for id, pending in list(self._by_id.items()):
            if not pending.is_admitted():
                self._end(id)
        again = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._end_refused) if self._by_id else None
        self._look = again

    def _make_room(self) -> bool:
        """Drop a call that has waited EVICTABLE_SECONDS, because its client may be gone: the oldest of the caller with
        the most places.
        """
        (most, _), *_ = self._held().most_common(1)
        parked = (pending for id, pending in self._by_id.items() if id not in self._tasks)
        oldest = next((one for one in parked if one.caller.client.principal.caller == most), None)
        if oldest is None or monotonic() - oldest.is_kept < EVICTABLE_SECONDS:
            return False
        self._end(oldest.id)
        return True

    def _keep_until(self, pending: PendingCall, seconds: float) -> None:
        self._drop(pending.id)
        pending.is_kept = monotonic()
        self._by_id[pending.id] = pending
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._end_refused)
        pending.expires = asyncio.get_running_loop().call_later(seconds, self._end, pending.id)

    def _drop(self, id: str) -> PendingCall | None:
        pending = self._by_id.pop(id, None)
        self._tasks.discard(id)
        if pending is not None and pending.expires is not None:
            pending.expires.cancel()
        return pending

    def _end(self, id: str) -> None:
        if pending := self._drop(id):
            pending.cancel()


def binding_of(method: str, params: Mapping[str, Any]) -> bytes:
    """Return a hash of method and params. It does not depend on the order of members in a repeated request."""
    kept = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
    return blake2b(json.dumps([method, kept], sort_keys=True).encode(), digest_size=16).digest()


def answer_key(request: McpRequest) -> str | None:
    """Return what the same answer of the same client to the same question has in common; None for other requests.

    Another credential of its owner needs the same rights (`PendingCall.renew`).
    """
    params = request.params
    if "requestState" not in params:
        return None
    client = request.client
    rights = [client.owner, client.principal.role, client.principal.tools]
    parts = [rights, params["requestState"], params.get("inputResponses")]
    told = json.dumps(parts, sort_keys=True).encode() + binding_of(request.method, params)
    return blake2b(told, digest_size=16).hexdigest()


def _now() -> str:
    return utc_text_ms(time())


# Running a handler that may pause

Work = Callable[[ClientCaller], Coroutine[Any, Any, dict[str, Any]]]


async def run_pausable(request: McpRequest, work: Work, pending_calls: PendingCalls) -> dict[str, Any]:
    """Run the work of a prompt or a resource. Return its result or its questions."""
    if request.can_pause():
        return await run_pausing(request, partial(_with_caller, work), pending_calls)
    return await _with_caller(work, ClientCaller(request.client, request.channel, request.progress_token))


async def run_pausing(
    request: McpRequest, work: Work, pending_calls: PendingCalls, task_after: float | None = None
) -> dict[str, Any]:
    """Run the work for the request's caller. Return its result, its questions, or its task."""
    if (key := answer_key(request)) is None:
        return await _run_until_pause(request, _start(request, work, pending_calls), pending_calls, task_after)
    if (known := pending_calls.outcome_of(key)) is not None:
        return await asyncio.shield(known)
    pending = _resume(request, pending_calls)
    outcome = pending_calls.begin_answer(key)
    try:
        result = await _run_until_pause(request, pending, pending_calls, task_after)
    except JsonRpcError as error:
        outcome.set_exception(error)
        raise
    except BaseException:
        outcome.set_exception(JsonRpcError(INTERNAL_ERROR, "the call was cancelled"))
        raise
    outcome.set_result(result)
    return result


async def _run_until_pause(
    request: McpRequest, pending: PendingCall, pending_calls: PendingCalls, task_after: float | None
) -> dict[str, Any]:
    client = request.client
    if not client.can(TASKS):
        task_after = None
    try:
        if not await pending.wait_for_pause(task_after):
            if pending_calls.has_room_for(client.principal):
                pending.caller.channel = None  # further notifications belong to no request
                task = pending_calls.as_task(pending)
                await pending_calls.share(pending)
                return task
            await pending.wait_for_pause()
    except asyncio.CancelledError:
        pending.cancel()
        raise
    if pending.is_done:
        return pending.result()
    state = pending_calls.keep(pending)
    pending.caller.channel = None
    return {"resultType": "input_required", "inputRequests": pending.questions(), "requestState": state}


def _start(request: McpRequest, work: Work, pending_calls: PendingCalls) -> PendingCall:
    caller = ClientCaller(
        request.client, request.channel, request.progress_token, lambda question: pending.ask(question)
    )
    answers = request.param("inputResponses", dict, {})
    pending = PendingCall(caller, binding_of(request.method, request.params), answers, pending_calls.replica)
    pending.start(work(caller))
    return pending


def _resume(request: McpRequest, pending_calls: PendingCalls) -> PendingCall:
    """Give the answers of a request to its pending call. Raises JsonRpcError."""
    answers = request.param("inputResponses", dict, {})
    binding = binding_of(request.method, request.params)
    pending = pending_calls.resume(request.params["requestState"], request.client, binding)
    pending.caller.client, pending.caller.channel = request.client, request.channel
    pending.caller.progress_token = request.progress_token
    pending.take_answers(answers)
    return pending


async def _with_caller(work: Work, caller: ClientCaller) -> dict[str, Any]:
    token = current_caller.set(caller)
    try:
        return await work(caller)
    finally:
        current_caller.reset(token)
        caller.channel = None


def lacking_capability(caller: ClientCaller) -> JsonRpcError | None:
    """Return the error for a call that failed because the client lacks a capability."""
    error = caller.lacking
    if error is None or not caller.client.is_stateless:
        return None
    return missing_capability(error.capability, str(error))


def missing_capability(capability: str, message: str) -> JsonRpcError:
    wanted = {"extensions": {capability: {}}} if "/" in capability else {capability: {}}
    return JsonRpcError(MISSING_CAPABILITY, message, {"requiredCapabilities": wanted})
