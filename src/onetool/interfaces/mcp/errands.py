"""Calls that pause for an answer, or outlast the request that began them.

Since 2026-07-28 a server asks by answering: the reply to a request says what is wanted, and the client sends the
request again with the answers. Meanwhile the call waits here, in the middle of its handler: nothing is run twice. What
the client gets to hold is sealed, and good for one answer, from the same client, to the same request.

A task (an extension) is the same thing under a name that the client may ask about.
"""

import asyncio
import json
import logging
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from secrets import token_hex
from time import monotonic
from typing import Any

import msgspec

from onetool.core.caller import Declined, Question
from onetool.core.errors import ToolFailure
from onetool.interfaces.mcp.caller import ClientCaller
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.questions import BadAnswer, answered, asked
from onetool.interfaces.mcp.seal import Seal
from onetool.interfaces.mcp.wire import INTERNAL_ERROR, INVALID_PARAMS, Fault

log = logging.getLogger("onetool.mcp")

MOST = 64  # that are not done; each may hold a worker of the sandbox
FULL = f"{MOST} calls wait for an answer, or go on as tasks, already: try again later"
MOST_DONE = 1000  # tasks whose results are kept
PARKED_SECONDS = 600.0  # for an answer
PATIENT_SECONDS = 60.0  # … where all places are taken
POLL_MS = 500
TURNS = 3  # of the loop, before a call that asks is taken to have asked all it wants to know at once

Result = dict[str, Any]


class Asking(msgspec.Struct, frozen=True):
    question: Question
    answer: "asyncio.Future[Any]"


class Errand:
    """One call that can pause. `caller` is the client's latest request; `asks` is what it has not answered yet."""

    _work: "asyncio.Task[Result]"

    def __init__(self, caller: ClientCaller, binding: bytes, answers: Mapping[str, Any]) -> None:
        self.id = token_hex(16)
        self.caller = caller
        self.binding = binding
        self.round = 0
        self.asks: dict[str, Asking] = {}
        self.created = self.updated = _now()
        self.expires: asyncio.TimerHandle | None = None
        self.parked = 0.0
        self._loop = asyncio.get_running_loop()
        self._answers = dict(answers)  # that came with the first request: a client may know what will be asked
        self._turn: asyncio.Future[None] | None = None

    def start(self, work: Coroutine[Any, Any, Result]) -> None:
        self._work = self._loop.create_task(work)
        self._work.add_done_callback(self._ended)

    async def turn(self, seconds: float | None = None) -> bool:
        """Wait until it is done, or asks. False when that takes longer than these seconds."""
        if self._work.done():
            return True
        self._turn = self._loop.create_future()
        self._settle_soon()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._turn, seconds)
            return True
        return False

    @property
    def is_done(self) -> bool:
        return self._work.done()

    def result(self) -> Result:
        """What came of it. Raises Fault."""
        try:
            return self._work.result()
        except asyncio.CancelledError:
            raise Fault(INTERNAL_ERROR, "the call was cancelled") from None

    def cancel(self) -> None:
        self._work.cancel()

    # Questions

    async def ask(self, question: Question) -> Any:
        """For the handler: waits until the client has answered."""
        if question.key in self._answers:
            with suppress(BadAnswer):
                return answered(question, self._answers.pop(question.key))
        if question.key in self.asks:
            raise ToolFailure(f"two questions at once are called {question.key!r}: give each a key of its own")
        asking = self.asks[question.key] = Asking(question, self._loop.create_future())
        self.updated = _now()
        self._settle_soon()
        try:
            return await asking.answer
        finally:
            self.asks.pop(question.key, None)

    def give(self, answers: Mapping[str, Any]) -> None:
        """Answers of the client. Those that can't be used are as good as none; those to nothing are ignored."""
        for key, raw in answers.items():
            asking = self.asks.get(key)
            if asking is None or asking.answer.done():
                continue
            try:
                value = answered(asking.question, raw)
            except BadAnswer:
                continue
            except (Declined, ToolFailure) as failure:
                asking.answer.set_exception(failure)
            else:
                asking.answer.set_result(value)
            del self.asks[key]
        self.updated = _now()

    def forget_answers(self) -> None:
        """What came with the first request was for what is asked in it."""
        self._answers.clear()

    def questions(self) -> dict[str, Any]:
        return {key: asked(asking.question) for key, asking in self.asks.items()}

    def _settle_soon(self, turns: int = TURNS) -> None:
        """Questions that are asked side by side go out together."""
        if turns:
            self._loop.call_soon(self._settle_soon, turns - 1)
        elif self.asks:
            self._wake()

    def _ended(self, work: "asyncio.Task[Result]") -> None:
        self.updated = _now()
        self._answers.clear()
        error = None if work.cancelled() else work.exception()  # told when somebody asks
        if error is not None and not isinstance(error, Fault):
            log.error("a call failed", exc_info=error)
        self._wake()

    def _wake(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    # As a task

    def task(self, ttl_ms: int) -> Result:
        """The task as it stands, with what it has to tell."""
        return {**self.summary(ttl_ms), **self._told()}

    def summary(self, ttl_ms: int) -> Result:
        return {
            "taskId": self.id,
            "status": self._status(),
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": ttl_ms,
            "pollIntervalMs": POLL_MS,
        }

    def _status(self) -> str:
        work = self._work
        if not work.done():
            return "input_required" if self.asks else "working"
        if work.cancelled():
            return "cancelled"
        return "completed" if work.exception() is None else "failed"

    def _told(self) -> Result:
        match self._status():
            case "input_required":
                return {"inputRequests": self.questions()}
            case "completed":
                return {"result": self.result()}
            case "failed":
                error = self._work.exception()
                return {"error": error.error() if isinstance(error, Fault) else _bug()}
            case _:
                return {}


class Errands:
    """Those that wait for their client: for an answer to a question, or as tasks."""

    def __init__(self, task_seconds: float) -> None:
        self._task_seconds = task_seconds
        self._kept: dict[str, Errand] = {}
        self._tasks: set[str] = set()
        self._asking = 0
        self._seal = Seal()

    @property
    def ttl_ms(self) -> int:
        return int(self._task_seconds * 1000)

    @property
    def has_room(self) -> bool:
        return self._asking + sum(not errand.is_done for errand in self._kept.values()) < MOST

    @contextmanager
    def asking(self) -> Generator[None]:
        """A question to a client that has a session: the call waits on its own, but takes a place, too."""
        if not self.has_room:
            raise Fault(INTERNAL_ERROR, FULL)
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    def park(self, errand: Errand) -> str:
        """Keep it until the client answers; what the client has to send back for that."""
        errand.forget_answers()
        if not self.has_room and not self._make_room():
            errand.cancel()
            raise Fault(INTERNAL_ERROR, FULL)
        self._keep(errand, PARKED_SECONDS)
        return self._seal.sealed(bytes.fromhex(errand.id) + errand.round.to_bytes(4))

    def resume(self, state: Any, client: Client, binding: bytes) -> Errand:
        """The errand that goes on with this request."""
        data = self._seal.opened(state) if isinstance(state, str) else None
        if data is None:
            raise Fault(INVALID_PARAMS, "requestState is not one of ours: send it back exactly as it came")
        errand = self._kept.get(data[:16].hex())
        if errand is None or errand.caller.owner != client.owner:
            raise Fault(INVALID_PARAMS, "requestState has expired: send the request again without it")
        if errand.round != int.from_bytes(data[16:]):
            raise Fault(INVALID_PARAMS, "requestState was used already: it is good for one answer")
        if errand.binding != binding:
            raise Fault(INVALID_PARAMS, "requestState belongs to another request: send the same params with it")
        errand.round += 1
        self._drop(errand.id)
        return errand

    def as_task(self, errand: Errand) -> Result:
        """From now on it is asked about by its id, and lives until some time after its end."""
        done = [id for id, errand in self._kept.items() if errand.is_done]
        for id in done[: max(0, len(done) - MOST_DONE)]:
            self._end(id)
        self._keep(errand, self._task_seconds)
        self._tasks.add(errand.id)
        return {"resultType": "task", **errand.summary(self.ttl_ms)}

    def task(self, id: Any, client: Client) -> Errand:
        errand = self._kept.get(id) if isinstance(id, str) and id in self._tasks else None
        if errand is None or errand.caller.owner != client.owner:
            raise Fault(INVALID_PARAMS, "taskId: there is no such task, or its time is up")
        return errand

    def close(self) -> None:
        for id in list(self._kept):
            self._end(id)

    def _make_room(self) -> bool:
        """The one that has waited longest goes, if it has waited for long: its client may not be there any more."""
        parked = (errand for id, errand in self._kept.items() if id not in self._tasks)
        oldest = next(parked, None)
        if oldest is None or monotonic() - oldest.parked < PATIENT_SECONDS:
            return False
        self._end(oldest.id)
        return True

    def _keep(self, errand: Errand, seconds: float) -> None:
        self._drop(errand.id)
        errand.parked = monotonic()
        self._kept[errand.id] = errand
        errand.expires = asyncio.get_running_loop().call_later(seconds, self._end, errand.id)

    def _drop(self, id: str) -> Errand | None:
        errand = self._kept.pop(id, None)
        self._tasks.discard(id)
        if errand is not None and errand.expires is not None:
            errand.expires.cancel()
        return errand

    def _end(self, id: str) -> None:
        if errand := self._drop(id):
            errand.cancel()


def binding_of(method: str, params: Mapping[str, Any]) -> bytes:
    """What makes a request the same one as before, in whichever order its members come."""
    kept = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
    return blake2b(json.dumps([method, kept], sort_keys=True).encode(), digest_size=16).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bug() -> dict[str, Any]:
    return {"code": INTERNAL_ERROR, "message": "internal error"}
