"""Secrets among arguments, taken out of messages."""

from onetool.core import redaction
from onetool.core.redaction import mask_values, secret_values


def test_secrets_are_masked_in_text_and_in_data():
    secrets = secret_values({"password": "hunter22", "deep": [{"apiKey": ["k-12345"]}]})
    assert mask_values(["hunter22!", {"a": "k-12345"}, 3], secrets) == ["***!", {"a": "***"}, 3]


def test_only_those_that_are_there_are_looked_for(monkeypatch):
    """Who calls us chooses how many there are."""
    masked, taken_out = redaction._mask_value, list[str]()
    monkeypatch.setattr(
        redaction, "_mask_value", lambda value, secret: taken_out.append(secret) or masked(value, secret)
    )
    secrets = secret_values({"password": [*(f"{n:06x}" for n in range(100_000)), "hunter22", "hunter22"]})
    assert mask_values(("it is hunter22", "it is not"), secrets) == ["it is ***", "it is not"]
    assert taken_out == ["hunter22"] * 3  # in the whole, and in each of its texts
