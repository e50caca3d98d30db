"""A web app of one's own that has OneTool below /tools, with its own lifespan and its own authentication.

    uvicorn --app-dir examples/web_app web:web

FastAPI takes it in the same way: `FastAPI(lifespan=lifespan).mount("/tools", asgi(tools, auth="user"))`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from onetool import App, asgi

KEYS = {"key-of-ada": "ada", "key-of-bob": "bob"}  # a real app asks its own store of users

tools = App.open(Path(__file__).with_name("onetool.yaml"))


class ApiKeys(AuthenticationBackend):
    """Whoever sends a key that is known is its user. All others are sent away before OneTool is reached."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        name = KEYS.get(conn.headers.get("x-api-key", ""))
        if name is None:
            raise AuthenticationError("send your key as X-Api-Key")
        return AuthCredentials(["authenticated"]), SimpleUser(name)


def refused(_: HTTPConnection, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=401)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with tools:  # closes it when the web app stops
        yield


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"Hello {request.user.display_name}")


web = Starlette(
    routes=[Route("/", home), Mount("/tools", asgi(tools, auth="user"))],
    middleware=[Middleware(AuthenticationMiddleware, backend=ApiKeys(), on_error=refused)],
    lifespan=lifespan,
)
