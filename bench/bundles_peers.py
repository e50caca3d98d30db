"""Who does the same calls as a tool of a bundle: `python -m bench.bundles_peers NAME PORT`, which is the API's.

Imports nothing of ours. FastMCP makes one tool of a function and another one of an OpenAPI document; Starlette has
two routes that somebody wrote by hand.
"""

import sys
from typing import Any

from bench.mcp_peers import listen


def document(port: int) -> dict[str, Any]:
    """The API in OpenAPI: the same that our HTTP tool calls."""
    city = {"name": "city", "in": "path", "required": True, "schema": {"type": "string"}}
    days = {"name": "days", "in": "query", "required": True, "schema": {"type": "integer"}}
    answer = {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}
    forecast = {"operationId": "forecast", "parameters": [city, days], "responses": {"200": answer}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weather", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{port}"}],
        "paths": {"/v1/{city}": {"get": forecast}},
    }


def fastmcp(port: int) -> Any:
    from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]

    server = FastMCP.from_openapi(document(port), name="bench")

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    server.tool(add)
    return server.http_app(path="/mcp", json_response=True, stateless_http=True)


def bare(port: int) -> Any:
    """With the JSON library that we use, and the HTTP client that FastMCP uses."""
    import httpx2
    import msgspec
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}")

    def reply(value: Any) -> Response:
        return Response(encode({"ok": True, "value": value}), media_type="application/json")

    async def add(request: Request) -> Response:
        args = decode(await request.body())["args"]
        return reply(args["a"] + args["b"])

    async def forecast(request: Request) -> Response:
        args = decode(await request.body())["args"]
        answer = await client.get(f"/v1/{args['city']}", params={"days": args["days"]})
        return reply(decode(answer.raise_for_status().content))

    return Starlette(routes=[Route("/add", add, methods=["POST"]), Route("/forecast", forecast, methods=["POST"])])


if __name__ == "__main__":
    listen({"fastmcp": fastmcp, "bare": bare}[sys.argv[1]](int(sys.argv[2])))
