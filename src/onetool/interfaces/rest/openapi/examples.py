"""What examples are made of: a bundle, a tool, a call, a question. They work as they stand, but for the host."""

from typing import Any

ADDRESS = "#/components/schemas/"

BUNDLE_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
TOOL_SLUG = "forecast"
TOOL_VERSION = "1.0"

BUNDLE: dict[str, Any] = {"slug": "weather", "displayName": "Weather", "description": "Forecasts.", "isEnabled": True}
TOOL: dict[str, Any] = {
    "type": "http",
    "displayName": "Forecast",
    "description": "The forecast for a city.",
    "tags": ["weather"],
    "isEnabled": True,
    "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "outputSchema": {},
    "httpImpl": {
        "request": {
            "method": "GET",
            "urlTemplate": "https://api.example.com/v1/${city}",
            "auth": {"type": "bearer", "value": "${WEATHER_TOKEN}"},
            "retries": 2,
        },
        "response": {"selector": "daily[0]"},
    },
    "limits": {"maxCallsPerMinute": 60},
}
SWITCH = {"isEnabled": False}
CALL = {"args": {"city": "Oslo"}}
QUESTION = {"prompt": "What time is it?", "toolAllow": ["time.now"]}
