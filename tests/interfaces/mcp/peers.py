"""Clients that hide nothing: messages are built here, and kept as they came.

A peer speaks the protocol of one era ("old": a session that begins with initialize; "new": every request alone) over
one transport. Tests that are true of all of them take the fixture `peer`, and are run four times.
"""

import json
import signal
import subprocess
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPException
from itertools import count
from threading import Condition, Thread

from helpers import start, until
from interfaces.mcp.servers import CONFIG, PATIENCE, Exchange, as_header, environment

NEW, OLD = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
TASKS = f"{META}tasks"
ABLE = {"elicitation": {}, "sampling": {}, "roots": {}}
INFO = {"name": "peer", "version": "1"}
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
NAMES |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")


class Pending:
    """A request that is being answered."""

    def __init__(self, id, exchange=None):
        self.id = id
        self.exchange = exchange
        self._future = Future()

    @property
    def is_answered(self):
        return self._future.done()

    def answer(self, patience=PATIENCE):
        return self._future.result(patience)

    def settle(self, message):
        if not self._future.done():
            self._future.set_result(message)


class Peer:
    """A client. `answers` has a function of the params for each method that the server may call."""

    def __init__(self, era, capabilities=ABLE, revision=OLD):
        self.era = era
        self.is_new = era == "new"
        self.capabilities = capabilities
        self.revision = NEW if self.is_new else revision
        self.answers = {}
        self.asked = []  # what the server wanted to know
        self.heard = []  # notifications
        self._change = Condition()
        self._pending = {}
        self._ids = count(1)

    # Asking the server

    def message(self, method, params=None, *, id=None, meta=None, capabilities=None):
        """A request as this era spells it."""
        params = dict(params or {})
        if self.is_new:
            able = self.capabilities if capabilities is None else capabilities
            own = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": able, f"{META}clientInfo": INFO}
            meta = {**own, **(meta or {})}
        if meta:
            params["_meta"] = meta
        return {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, "params": params}

    def begin(self, method, params=None, **more):
        """Send it, and do not wait."""
        raise NotImplementedError

    def ask(self, method, params=None, **more):
        """The answer."""
        return self.begin(method, params, **more).answer()

    def result(self, method, params=None, **more):
        reply = self.ask(method, params, **more)
        assert "error" not in reply, reply
        return reply["result"]

    def error(self, method, params=None, **more):
        reply = self.ask(method, params, **more)
        assert "result" not in reply, reply
        return reply["error"]

    def call(self, name, arguments=None, **more):
        """The result of a tool, with all its questions answered."""
        return self.finished("tools/call", {"name": name, "arguments": arguments or {}}, **more)

    def text(self, name, arguments=None, **more):
        """What a tool says, if it is one text and no error."""
        result = self.call(name, arguments, **more)
        assert not result.get("isError"), result
        (block,) = result["content"]
        return block["text"]

    def failure(self, name, arguments=None, **more):
        """What a tool says when it fails."""
        result = self.call(name, arguments, **more)
        assert result.get("isError") is True, result
        return result["content"][0]["text"]

    def finished(self, method, params, **more):
        """The last of as many rounds as there are questions. Before 2026-07-28 questions come by another way."""
        result = self.result(method, params, **more)
        while result.get("resultType") == "input_required":
            answers = {key: self._answer(asked) for key, asked in result["inputRequests"].items()}
            again = {**params, "inputResponses": answers, "requestState": result["requestState"]}
            result = self.result(method, again, **more)
        return result

    # What comes in

    def hear(self, method, patience=PATIENCE):
        """The params of the next notification of that name."""
        with self._change:
            self._change.wait_for(lambda: self._first(method), patience)
            found = self._first(method)
            assert found, f"no {method} among {self.heard}"
            self.heard.remove(found)
            return found.get("params", {})

    def _first(self, method):
        return next((one for one in self.heard if one["method"] == method), None)

    def _arrived(self, message):
        with self._change:
            if "method" not in message:
                if pending := self._pending.pop(message.get("id"), None):
                    pending.settle(message)
            elif "id" not in message:
                self.heard.append(message)
            else:
                Thread(target=self._answer_request, args=(message,), daemon=True).start()
            self._change.notify_all()

    def _answer_request(self, message):
        reply = self._answer(message)
        if not isinstance(reply, dict):  # it does not answer
            return
        told = {"error": reply["error"]} if "error" in reply else {"result": reply}
        with suppress(OSError, ValueError):  # the test may be over
            self.tell({"jsonrpc": "2.0", "id": message["id"], **told})

    def _answer(self, asked):
        self.asked.append(asked)
        return self.answers[asked["method"]](asked.get("params"))

    def tell(self, message):
        """Send a notification or a response."""
        raise NotImplementedError

    def forget(self):
        """Be as new."""
        with self._change:
            self.answers = {}
            self.heard.clear()
            self.asked.clear()

    def initialize(self, **more):
        params = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}
        result = self.result("initialize", params, **more)
        self.revision = result["protocolVersion"]
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result


class StdioPeer(Peer):
    """With `onetool mcp` at the other end of the pipe."""

    def __init__(self, folder, era, *args, config=CONFIG, begun=True, env=None, **options):
        super().__init__(era, **options)
        self.other_lines = []
        self.log_file = folder / "mcp.log"
        with self.log_file.open("wb") as log:
            self.process = start(
                *("--config", str(config), "mcp", *args),
                cwd=folder,
                env=environment(folder, **(env or {})),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        if begun and not self.is_new:
            self.initialize()

    def begin(self, method, params=None, **more):
        message = self.message(method, params, **more)
        pending = self._pending[message["id"]] = Pending(message["id"])
        self.tell(message)
        return pending

    def tell(self, message):
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def reply_to(self, data, id=None):
        """Bytes as they are, and the next answer that has this id."""
        before = self._pending.get(id)
        pending = self._pending[id] = Pending(id)
        self.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
        reply = pending.answer()
        if before is not None:
            self._pending[id] = before
        return reply

    def cancel(self, pending):
        self.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": pending.id}})

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def log(self):
        return self.log_file.read_text()

    @property
    def is_alive(self):
        return self.process.poll() is None

    def close(self):
        """Say no more; the exit code."""
        with suppress(OSError):
            self.process.stdin.close()
        return self.ended()

    def ended(self):
        """The exit code, once everything it had to say is read."""
        try:
            code = self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            with suppress(OSError):
                self.process.stdin.close()
        self._reader.join(PATIENCE)
        self.process.stdout.close()
        return code

    def _read(self):
        for line in self.process.stdout:
            try:
                messages = json.loads(line)
            except ValueError:
                self.other_lines.append(line)
                continue
            for message in messages if isinstance(messages, list) else [messages]:
                self._arrived(message)


class HttpPeer(Peer):
    """A client of a server."""

    def __init__(self, server, era, *, query="", token=None, begun=True, **options):
        super().__init__(era, **options)
        self.server = server
        self.path = f"/mcp{query}"
        self.session = None
        self.token = token
        if begun and not self.is_new:
            self.initialize()

    def begin(self, method, params=None, **more):
        message = self.message(method, params, **more)
        return self._pursue(self._exchange("POST", self.headers(message), message), message["id"])

    def _pursue(self, exchange, id=None):
        """Take what comes, in a thread. An exchange that ends without an answer is answered with None."""
        pending = self._pending[id] = Pending(id, exchange)

        def read():
            with suppress(OSError, HTTPException, ValueError):
                exchange.read(self._arrived)
            pending.settle(None)

        Thread(target=read, daemon=True).start()
        return pending

    def headers(self, message=None):
        """Those that belong to a message in this era."""
        found = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
        found += self._authorization()
        if self.is_new:
            found += [("MCP-Protocol-Version", NEW)]
            method = (message or {}).get("method")
            if method:
                found.append(("Mcp-Method", method))
            name = (message or {}).get("params", {}).get(NAMES.get(method))
            if isinstance(name, str):
                found.append(("Mcp-Name", as_header(name)))
        elif self.session:
            found += [("MCP-Protocol-Version", self.revision), ("Mcp-Session-Id", self.session)]
        return found

    def send(self, message, headers=None, **more):
        """One exchange, read to its end."""
        kept = self.headers(message if isinstance(message, dict) else None) if headers is None else headers
        return self.server.send(message, kept, path=more.pop("path", self.path), **more)

    def tell(self, message):
        exchange = self.send(message, self.headers())
        if exchange.status == 404:
            raise ConnectionError(f"the session has ended: {exchange.body}")
        assert (exchange.status, exchange.body) == (202, b""), (exchange.status, exchange.body)

    def listen(self, last_event_id=None):
        """The session's stream, or the rest of one; what comes there is heard."""
        headers = [("Accept", "text/event-stream"), ("Mcp-Session-Id", self.session), *self._authorization()]
        if last_event_id is not None:
            headers.append(("Last-Event-ID", last_event_id))
        exchange = self._exchange("GET", headers)
        pending = self._pursue(exchange)
        until(lambda: exchange.status)
        return pending

    def cancel(self, pending):
        """In the new era by hanging up."""
        if self.is_new:
            pending.exchange.hang_up()
        else:
            self.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": pending.id}})

    def reload(self):
        self.server.reload()

    def log(self):
        return self.server.log()

    @property
    def is_alive(self):
        return self.server.process.poll() is None

    def initialize(self, **more):
        params = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}
        exchange = self.send(self.message("initialize", params), self.headers())
        self.session = exchange.headers["mcp-session-id"]
        self.revision = exchange.message["result"]["protocolVersion"]
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return exchange.message["result"]

    def close(self):
        """End the session."""
        if self.session is not None:
            self.send(None, [("Mcp-Session-Id", self.session), *self._authorization()], method="DELETE")
        return 0

    def _authorization(self):
        return [("Authorization", f"Bearer {self.token}")] if self.token else []

    def _exchange(self, method, headers, message=None):
        return Exchange(self.server.port, method, self.path, headers, message)
