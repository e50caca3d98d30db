"""What a server may send in place of what it should: members that are gone, or are something else."""

import copy
from typing import Any

from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.sampled_from(["", "x", "{}", "text", 0.5]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["error", "type", "text", "message", "name", "parts"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with one to three things changed, or taken away."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(_places({"": value})[1:]))
        inside: Any = {"": value}
        for key in path:
            inside = inside[key]
        if path and draw(st.booleans()):
            del inside[last]
        else:
            inside[last] = draw(ANYTHING)
            value = inside[last] if not path else value
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, member in inside for place in _places(member, (*path, key)))]
