"""What clients see of all tools, and what calling them gives."""

def test_direct_x(peer):
    names = [one["name"] for one in peer.result("tools/list")["tools"]]
    assert "working__point" in names
    assert "plus" in names
    assert peer.text("plus", {"a": 1, "b": 2}) == "3"
    peer.answers = {"elicitation/create": lambda params: {"action": "accept", "content": {"name": "Ada"}}}
    assert peer.text("asking__name") == "Hello, Ada!"
