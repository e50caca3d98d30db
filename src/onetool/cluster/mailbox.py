"""`Mailbox`: messages between the processes that serve together, as rows of their database.

A process writes a row for the one that has a waiting call, a task or a session, and notifies it. The receiver handles
the message, and writes the outcome into the row. Heartbeats see messages, too, and who waits for an outcome looks for
it every second, so a lost notification only costs time. SQLite has no notifications: its change counter is read ten
times a second.

A message with a known id is written once: who sends it again waits for the same outcome, or gets it at once, even if
the receiver is gone. Only after a refusal in REPEATABLE is it handled again. While the database is away, a message is
held for HELD_S seconds, and an outcome until the database is back.

Messages and outcomes are sealed with the cluster's key, and bound to their row and receiver: write access to the
database is not enough to answer a question or to approve a call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec

from onetool.cluster.members import Members
from onetool.core.mcp_protocol import decode
from onetool.core.principal import Principal, current_address
from onetool.database import Database, DatabaseError, Transaction
from onetool.database.encryption import Seal, SealError
from onetool.http.asgi import HttpError, encode

log = logging.getLogger("onetool.cluster")
TOPIC = "message"  # the database notification topic; the detail is the receiver, or the id of an outcome
LOOK_S = 1.0
POLL_S = 0.1  # where the database notifies nobody
BROADCAST_S = 2.0
HELD_S = 25.0  # clients wait about 30 s for a response
KEPT_S = 600.0  # for which an outcome can be read again
MAX_HANDLED_S = 24 * 3600.0  # for a message to be handled
RETRY = [(b"retry-after", b"1")]
CANCELLED = {"refused": [500, "cancelled", "The call was cancelled."]}
REPEATABLE = (401, 503)  # statuses of refusals before anything has happened
SEND_AGAIN = "Send the same request again: it has an effect only once."

Handler = Callable[[Any], Awaitable[Any]]
Admit = Callable[[Principal, str], AbstractContextManager[None]]


class Message(msgspec.Struct, frozen=True):
    """A message, sealed in its row. `address` is that of the client."""

    kind: str
    body: Any
    principal: Principal
    address: str = ""


class Received(NamedTuple):
    id: str
    sender: str  # who waits for the outcome; "" if nobody does
    sealed: bytes


class Mailbox:
    """The messages of one process. Belongs to one event loop.

    `handlers` take messages by kind and return an outcome that JSON can express; an HttpError is sent to the waiting
    process, too. `admit` checks the caller of a message and makes it the current one, or raises HttpError. Messages of
    the kinds in `internal` have no caller.
    """

    admit: Admit = staticmethod(lambda _principal, _address: nullcontext())

    def __init__(self, database: Database, members: Members, keys: Iterable[bytes]) -> None:
        self.handlers: dict[str, Handler] = {"cancel": self._cancel}
        self.internal = {"cancel"}
        self._database = database
        self._members = members
        self._seal = Seal(lambda: [*keys])
        self._waiting: dict[str, set[asyncio.Future[Any]]] = {}
        self._posted = set[asyncio.Future[Any]]()  # those of them whose message is stored
        self._handling: dict[str, asyncio.Task[Any]] = {}  # by message, until its outcome is known
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by message, until its outcome is stored
        self._woken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    @property
    def is_busy(self) -> bool:
        """Whether messages are being handled here."""
        return bool(self._handling)

    def start(self) -> None:
        """Handle messages from now on."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has just closed
                loop.call_soon_threadsafe(self._woken.set)

        def hear(detail: str) -> None:
            if detail == self._members.id or detail in self._waiting:
                wake()

        self._stop_listening = self._database.on_change(TOPIC, hear)
        self._members.on_beat(lambda: wake() if self._members.has_messages else None)  # whose notification was lost
        self._looking = loop.create_task(self._look_always())

    async def close(self) -> None:
        """Stop handling messages, after the outcomes of those under way were written."""
        self._stop_listening()
        if self._looking is not None:
            self._looking.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks.values()], timeout=LOOK_S)

    async def ask(self, receiver: str, kind: str, body: Any, principal: Principal, id: str | None = None) -> Any:
        """Send a message, and return its outcome. `id` is the same for messages that may have an effect only once.

        If the caller is cancelled, so is the handling of the message. Raise HttpError: what the receiver has refused,
        or 503 while it or the database doesn't answer.
        """
        id = id or token_hex(16)
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, set()).add(outcome)
        try:
            await self._check(receiver, id, outcome)
            if not outcome.done():
                message = Message(kind, body, principal, current_address.get())
                await self._post([(id, receiver)], self._members.id, message)
            self._posted.add(outcome)
            self._woken.set()
            return await self._outcome(receiver, id, outcome)
        except asyncio.CancelledError:
            if kind != "cancel" and len(self._waiting[id]) == 1:
                self._later(self.tell(receiver, "cancel", id, principal))
            raise
        finally:
            self._posted.discard(outcome)
            self._waiting[id].discard(outcome)
            if not self._waiting[id]:
                del self._waiting[id]

    async def tell(self, receiver: str | None, kind: str, body: Any, principal: Principal) -> None:
        """Send a message without an outcome to a process; None means all others. Raises HttpError (503)."""
        others = [one.id for one in self._members.alive() if one.id != self._members.id]
        receivers = others if receiver is None else [receiver]
        if receivers:
            await self._post([(token_hex(16), one) for one in receivers], "", Message(kind, body, principal))

    async def ask_all(self, kind: str, body: Any, principal: Principal) -> None:
        """Have all other processes handle a message, for at most BROADCAST_S seconds. Failures are logged."""

        async def one(receiver: str) -> None:
            try:
                async with asyncio.timeout(BROADCAST_S):
                    await self.ask(receiver, kind, body, principal)
            except (HttpError, TimeoutError) as error:
                log.warning("replica %s was not told of a change: %s", receiver, str(error) or "it did not answer")

        await asyncio.gather(*(one(peer.id) for peer in self._members.alive() if peer.id != self._members.id))

    # Sending

    async def _post(self, rows: list[tuple[str, str]], sender: str, message: Message) -> None:
        """Write a row for each id and receiver. Hold them while the database is away, then raise HttpError (503)."""
        body = encode(msgspec.to_builtins(message))
        insert = (
            "INSERT INTO messages (id, receiver, sender, body, until) "  # noqa: S608 - ours
            f"VALUES (%s, %s, %s, %s, {self._database.clock} + %s) ON CONFLICT (id) DO UPDATE "
            "SET sender = excluded.sender, body = excluded.body, until = excluded.until, outcome = NULL "
            "WHERE messages.outcome IS NOT NULL AND messages.sender = ''"
        )
        sealed = [
            (id, receiver, sender, self._seal.close(_about(id, receiver), body), MAX_HANDLED_S) for id, receiver in rows
        ]

        def write(work: Transaction) -> None:
            for row in sealed:
                work.execute(insert, row)
            for _, receiver in rows:
                work.notify(TOPIC, receiver)

        try:
            async with asyncio.timeout(HELD_S):
                await self._until_stored(write)
        except TimeoutError:
            text = f"The database of the replicas can't be used. {SEND_AGAIN}"
            raise HttpError(503, "database_away", text, RETRY) from None

    async def _until_stored(self, job: Callable[[Transaction], Any]) -> None:
        """Run a job, again and again while the database is away.

        If the caller is cancelled, a write under way is done first, because what follows must come after it.
        """
        level = logging.WARNING
        while True:
            writing = asyncio.ensure_future(asyncio.to_thread(self._database.write, job))
            try:
                await asyncio.shield(writing)
                return
            except asyncio.CancelledError:
                await asyncio.wait([writing])
                writing.exception()
                raise
            except DatabaseError as error:
                log.log(level, "a message waits for the database: %s", error)
                level = logging.DEBUG
                await asyncio.sleep(LOOK_S)

    async def _outcome(self, receiver: str, id: str, outcome: "asyncio.Future[Any]") -> Any:
        """Wait for the outcome as long as the receiver is there."""
        while not (await asyncio.wait([outcome], timeout=LOOK_S))[0]:
            await self._check(receiver, id, outcome)
        found = outcome.result()
        if "refused" in found:
            status, code, text = found["refused"]
            raise HttpError(status, code, text, RETRY if status == 503 else ())
        return found["outcome"]

    async def _check(self, receiver: str, id: str, outcome: "asyncio.Future[Any]") -> None:
        """Raise HttpError if the receiver does not answer now, and has not stored the outcome either."""
        if self._members.is_alive(receiver) or self._members.is_settling or outcome.done():
            return
        try:
            fate = await asyncio.to_thread(self._members.fate, receiver)
            if fate != "alive":
                outcomes = await asyncio.to_thread(self._database.read, lambda work: self._outcomes(work, [id]))
                self._give(outcomes, {id: {outcome}})
        except DatabaseError:
            await asyncio.sleep(LOOK_S)
            return
        if fate == "alive" or outcome.done():
            return
        if fate == "gone":
            raise ProcessGoneError
        raise HttpError(503, "no_answer", f"The process that has this call does not answer. {SEND_AGAIN}", RETRY)

    # Receiving

    async def _look_always(self) -> None:
        while True:
            seen = self._stamp()
            self._woken.clear()
            try:
                await self._look()
            except DatabaseError as error:
                log.debug("no look for messages: %s", error)
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                log.error("no look for messages: %s: %s", type(error).__name__, error)
            await self._wait(seen)

    async def _wait(self, seen: object) -> None:
        """Wait until something may have changed. For outcomes, whose notification may get lost, wait for LOOK_S."""
        step = LOOK_S if seen is None else POLL_S
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), step)
                return
            if self._waiting if seen is None else self._stamp() != seen:
                return

    def _stamp(self) -> object:
        with suppress(DatabaseError):
            return self._database.stamp()
        return None

    async def _look(self) -> None:
        waiting = {id: found for id, futures in self._waiting.items() if (found := futures & self._posted)}
        known = [*self._tasks]
        received, outcomes = await asyncio.to_thread(
            self._database.read, lambda work: (self._received(work, known), self._outcomes(work, [*waiting]))
        )
        for one in received:
            self._keep(one.id, self._handle(one))
        self._give(outcomes, waiting)

    def _give(self, outcomes: list[tuple[str, bytes]], waiting: dict[str, set["asyncio.Future[Any]"]]) -> None:
        """Give outcomes to those who wait for them."""
        for id, sealed in outcomes:
            try:
                found = decode(self._seal.open(_about(id), bytes(sealed)))
            except SealError as error:
                found = {"refused": [502, "bad_outcome", f"The outcome of this call can't be read: {error}."]}
            for future in waiting[id]:
                if not future.done():
                    future.set_result(found)

    def _received(self, work: Transaction, known: list[str]) -> list[Received]:
        """Return the messages for this process, without those that are being handled."""
        sql = "SELECT id, sender, body FROM messages WHERE receiver = %s AND outcome IS NULL"
        if known:
            sql += f" AND id NOT IN ({', '.join(['%s'] * len(known))})"
        return [Received(id, sender, bytes(body)) for id, sender, body in work.execute(sql, (self._members.id, *known))]

    def _outcomes(self, work: Transaction, ids: list[str]) -> list[tuple[str, bytes]]:
        if not ids:
            return []
        marks = ", ".join(["%s"] * len(ids))
        sql = f"SELECT id, outcome FROM messages WHERE id IN ({marks}) AND outcome IS NOT NULL"  # noqa: S608 - ours
        return [(id, outcome) for id, outcome in work.execute(sql, ids)]

    async def _handle(self, received: Received) -> None:
        """Handle a message and store its outcome."""
        handling = self._handling[received.id] = asyncio.create_task(self._outcome_of(received))
        await asyncio.wait([handling])
        del self._handling[received.id]
        found = CANCELLED if handling.cancelled() else handling.result()
        await self._until_stored(lambda work: self._end(work, received, found))

    async def _outcome_of(self, received: Received) -> dict[str, Any]:
        try:
            data = self._seal.open(_about(received.id, self._members.id), received.sealed)
            message = msgspec.convert(decode(data), Message)
            if (handler := self.handlers.get(message.kind)) is None:
                raise HttpError(404, "not_found", "The process that should have this call does not have it.")
            is_internal = message.kind in self.internal
            with nullcontext() if is_internal else self.admit(message.principal, message.address):
                return {"outcome": await handler(message.body)}
        except HttpError as error:
            return {"refused": [error.status, error.code, str(error)]}
        except SealError as error:
            log.error("a message was not made by a process of this cluster, and is ignored: %s", error)
            return {"refused": [502, "bad_message", "The message was not made by a process of this cluster."]}
        except Exception:
            log.exception("a message of another process failed")
            return {"refused": [500, "internal_error", "The process that has this call failed; see its log."]}

    def _end(self, work: Transaction, received: Received, found: dict[str, Any]) -> None:
        if not received.sender:
            work.execute("DELETE FROM messages WHERE id = %s", (received.id,))
            return
        sealed = self._seal.close(_about(received.id), encode(found))
        sql = f"UPDATE messages SET outcome = %s, sender = %s, until = {self._database.clock} + %s WHERE id = %s"  # noqa: S608 - ours
        is_repeatable = found.get("refused", [0])[0] in REPEATABLE
        work.execute(sql, (sealed, "" if is_repeatable else received.sender, KEPT_S, received.id))
        work.notify(TOPIC, received.id)

    async def _cancel(self, id: str) -> None:
        """Cancel the handling of a message, whose sender has disconnected."""
        if (handling := self._handling.get(id)) is not None:
            handling.cancel()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that outlives its request."""

        async def run() -> None:
            with suppress(HttpError):
                await work

        self._keep(token_hex(16), run())

    def _keep(self, id: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(id))


class ProcessGoneError(HttpError):
    """The process that had a call has ended, or has not answered for so long that it counts as ended."""

    def __init__(self) -> None:
        text = "The process that had this call is gone; it is unknown whether the call had an effect."
        super().__init__(502, "process_gone", text)


def _about(id: str, receiver: str = "") -> str:
    """Return what a sealed text is bound to: its row, and the receiver of a message, not of an outcome."""
    return f"message {id} to {receiver}" if receiver else f"outcome {id}"
