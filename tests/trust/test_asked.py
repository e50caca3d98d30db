"""What a person says yes to is what was shown: not what lies there a moment later."""

import click
import pytest
from click.testing import CliRunner

from onetool.config import stamps
from onetool.config.find import find
from onetool.config.reach import reach_of
from onetool.interfaces.cli import trust as trust_command
from onetool.interfaces.cli import trusting

MILD, EVIL = "allowedHosts: [a.example]\n", "allowedHosts: [a.example, evil.example]\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    config = tmp_path / ".onetool" / "onetool.yaml"
    config.parent.mkdir()
    config.write_text(MILD)
    monkeypatch.chdir(tmp_path)
    for module in (trust_command, trusting):
        monkeypatch.setattr(module, "is_anybody_there", lambda: True)
    return config


def test_what_changes_while_somebody_looks_is_shown_again(config, monkeypatch):
    asked = []

    def answer(*_, **__):
        asked.append(config.read_text())
        config.write_text(EVIL)
        return True

    monkeypatch.setattr(click, "confirm", answer)
    shown = CliRunner().invoke(trust_command.trust).output
    assert asked == [MILD, EVIL]
    assert "changed meanwhile" in shown.partition("evil.example")[0]
    assert find().untrusted is None


def test_nor_is_it_trusted_by_who_says_no_then(config, monkeypatch):
    answers = iter([True, False])

    def answer(*_, **__):
        config.write_text(EVIL)
        return next(answers)

    monkeypatch.setattr(click, "confirm", answer)
    CliRunner().invoke(trust_command.trust)
    assert find().untrusted is not None


def test_at_the_question_of_other_commands_too(config, monkeypatch):
    answers = iter(["v", "y"])

    def answer(*_, **__):
        said = next(answers)
        if said == "y":
            config.write_text(EVIL)
        return said

    monkeypatch.setattr(click, "prompt", answer)
    assert trusting.offer_trust(find().untrusted)
    assert "host evil.example" in str(find().untrusted)


def test_a_file_that_is_written_while_it_is_read_counts_as_read_before(config, monkeypatch):
    """Else its stamp would say that what nobody has seen is what was seen."""
    real = stamps.stamp_of

    def stamped(file):
        if file == config:
            config.write_text(EVIL)
        return real(file)

    monkeypatch.setattr("onetool.config.reach.stamp_of", stamped)
    before = reach_of(config.parent, config)
    assert "host evil.example" in before.dials or before.files[str(config)] != real(config)
