from onetool.sdk import LogSpan, ToolFailure, api_headers, get_config, lazy_client, requires_lib, safe_request, tool


def _make_client():
    import httpx  # imported when it is first needed, so that listing tools stays quick

    return httpx.Client(timeout=5)


_client = lazy_client(_make_client)


@tool(read_only=True, idempotent=True, timeout=20, tags=["forecast"])
@requires_lib("httpx", install="pip install httpx")
def today(city: str) -> dict:
    """Tell today's weather in a city."""
    address = get_config().get("address")
    if not address:
        raise ToolFailure("no weather service is configured", hints=["set settings.weather.address in the config"])
    with LogSpan("weather.request", city=city):
        ok, answer = safe_request(
            _client(), "GET", address, params={"city": city}, headers=api_headers("WEATHER_KEY")
        )
    if not ok:
        raise ToolFailure(answer, reason="source_unavailable")
    return answer
