"""Work for another process ends with the access of its caller, and a server that stops waits for it."""

import asyncio
from types import SimpleNamespace

import pytest

from onetool.config.model import OWN_TOKEN, HttpConfig
from onetool.core.principal import Principal, is_admitted
from onetool.interfaces.http.admissions import CHECK_EVERY_S
from onetool.interfaces.http.guard import Guard, Route
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.rules import AccessRules

pytestmark = pytest.mark.attack("replicas")

ADDRESS = BoundAddress("127.0.0.1", 8765, ("127.0.0.1",))
TOKEN = "sesame-token-0123456789"
ADMIN = Principal(name=OWN_TOKEN, role="admin", shares_local_state=True)


def rules(token):
    return AccessRules(HttpConfig(token=token), ADDRESS)


def guard(mailbox, *routes):
    return Guard(routes, rules(TOKEN), 1024, cluster=SimpleNamespace(mailbox=mailbox, id="00000000"))


def test_a_reload_that_removes_the_token_ends_the_work():
    async def test():
        site = guard(mailbox := SimpleNamespace())
        with mailbox.admit(ADMIN, ""):
            assert is_admitted.get()()
            site.rules = rules(None)
            assert not is_admitted.get()()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(5)

    asyncio.run(test())


def test_a_server_that_stops_waits_for_the_work():
    async def test():
        site = guard(mailbox := SimpleNamespace(is_busy=True))
        assert not await site.finish(0.1)
        mailbox.is_busy = False
        assert await site.finish(0.1)

    asyncio.run(test())


def test_who_loses_access_is_cancelled_once():
    """What cleans up after a call is not cancelled, too."""
    cleaned = []

    async def app(scope, receive, send):
        try:
            site.rules = rules(None)
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(3 * CHECK_EVERY_S)
            cleaned.append(True)

    async def send(message):
        sent.append(message)

    site, sent = Guard([Route("/x", app)], rules(TOKEN), 1024), []
    headers = [(b"host", b"localhost:8765"), (b"authorization", b"Bearer " + TOKEN.encode())]
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": headers, "client": ("127.0.0.1", 1)}
    asyncio.run(site(scope, None, send))
    assert (cleaned, sent[0]["status"]) == ([True], 401)
