from pathlib import Path

from onetool.sdk import ask_person, tool


@tool(timeout=5)
async def remove(path: str) -> str:
    """Remove a file, if the person agrees."""
    answer = await ask_person(f"Remove {path}?", {"sure": {"type": "boolean", "title": "Remove it"}})
    if not answer["sure"]:
        return "kept"
    Path(path).unlink()
    return "removed"
