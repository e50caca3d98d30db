"""The revisions of the protocol that we speak, and the words that they share.

Until 2025-11-25 a client opens with `initialize` and has a session. Since 2026-07-28 every request stands alone and
carries in its `_meta` what a session knew.
"""

MODERN = ("2026-07-28",)
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the newest first

BATCHES = "2025-03-26"  # the one that sends several messages at once
UNNAMED = "2025-03-26"  # that of a client over HTTP that names none

META = "io.modelcontextprotocol/"
PROTOCOL_VERSION = f"{META}protocolVersion"
CLIENT_CAPABILITIES = f"{META}clientCapabilities"
LOG_LEVEL = f"{META}logLevel"
SERVER_INFO = f"{META}serverInfo"
SUBSCRIPTION_ID = f"{META}subscriptionId"
TASKS = f"{META}tasks"  # an extension

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def agreed(wanted: str) -> str:
    """The revision for a client that opens with `initialize`: the one it wants, or our newest."""
    return wanted if wanted in HANDSHAKE else HANDSHAKE[0]
