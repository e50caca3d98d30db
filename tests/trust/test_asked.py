"""What a person says yes to is what was shown: not what lies there a moment later."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from helpers import each

from onetool.config.find import find
from onetool.config.pin import Seen, flat, see
from onetool.core import file_facts
from onetool.interfaces.cli import trust
from onetool.interfaces.cli.init import init

MILD, EVIL = "allowedHosts: [a.example]\n", "allowedHosts: [a.example, evil.example]\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    config = tmp_path / ".onetool" / "onetool.yaml"
    config.parent.mkdir()
    config.write_text(MILD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trust, "is_interactive", lambda: True)
    monkeypatch.setattr("onetool.interfaces.cli.output.is_interactive", lambda: True)
    return config


def test_what_changes_while_somebody_looks_is_shown_again(config, monkeypatch):
    asked = []

    def answer(*_, **__):
        asked.append(config.read_text())
        config.write_text(EVIL)
        return True

    monkeypatch.setattr(click, "confirm", answer)
    shown = CliRunner().invoke(trust.trust).output
    assert asked == [MILD, EVIL]
    assert "changed in the meantime" in shown.partition("evil.example")[0]
    assert find().untrusted is None


def test_nor_is_it_trusted_by_who_says_no_then(config, monkeypatch):
    answers = iter([True, False])

    def answer(*_, **__):
        config.write_text(EVIL)
        return next(answers)

    monkeypatch.setattr(click, "confirm", answer)
    CliRunner().invoke(trust.trust)
    assert find().untrusted is not None


@pytest.mark.attack("cloned repositories")
def test_other_commands_show_the_folder_before_they_ask(config, monkeypatch, capsys):
    server = {"command": "sh", "args": ["-c", "evil"], "env": {"LD_PRELOAD": "./evil.so"}}
    config.write_text(json.dumps({"servers": {"s": server}}))
    shown = []

    def answer(*_, **__):
        shown.append(capsys.readouterr())
        return False

    monkeypatch.setattr(click, "confirm", answer)
    assert not trust.offer_trust(find().untrusted)
    ((out, err),) = shown
    assert out == ""
    assert "servers.s.args: -c evil" in err
    assert "! servers.s.env.LD_PRELOAD: ./evil.so" in err
    assert find().untrusted is not None


@pytest.mark.attack("cloned repositories")
def test_other_commands_show_again_what_changes_during_the_question(config, monkeypatch, capsys):
    answers = iter([True, False])

    def answer(*_, **__):
        config.write_text(EVIL)
        return next(answers)

    monkeypatch.setattr(click, "confirm", answer)
    assert trust.offer_trust(find().untrusted)
    assert "+ allowedHosts[1]" in str(find().untrusted)
    capsys.readouterr()
    assert not trust.offer_trust(find().untrusted)
    assert "\n  + allowedHosts[1]: evil.example" in capsys.readouterr().err


@pytest.mark.attack("cloned repositories")
def test_a_folder_whose_config_cannot_be_shown_is_not_asked_about(config, monkeypatch, capsys):
    config.write_text("servers: {")
    monkeypatch.setattr(click, "confirm", lambda *_, **__: pytest.fail("asked"))
    assert not trust.offer_trust(find().untrusted)
    assert "onetool.yaml:1" in capsys.readouterr().err


def test_a_file_that_is_written_while_it_is_read_counts_as_read_before(config, monkeypatch):
    """Else its stamp would say that what nobody has seen is what was seen."""
    real = file_facts.stamp_of

    def stamped(file):
        if file == config:
            config.write_text(EVIL)
        return real(file)

    monkeypatch.setattr("onetool.config.pin.stamp_of", stamped)
    before = see(config.parent, config)
    assert "evil.example" in before.lines.values() or before.files[str(config)] != real(config)


# What is shown


HIDDEN = [0x3164, 0xFFA0, 0x115F, 0x1160, 0x2800, 0x17B4, 0x180B, 0x180E, 0xFE00, 0xFE0F, 0x034F, 0xE0100, 0xE01EF]


@each("code", [*HIDDEN, 0x1D159, 0xAD, 0x200B, 0x202E, 0x2066, 0xE0041])
def test_what_nobody_can_see_is_written_out(code):
    shown = shown_line(f"rm{chr(code)} -rf")
    assert chr(code) not in shown
    assert f"{code:x}" in shown


def shown_line(value):
    lines = trust.describe(Seen(lines={"settings.s": value}), None, Path("/p"))
    return next(line for line in lines if "settings.s" in line)


def test_a_line_stays_one_line():
    assert "\n" not in shown_line("a.example\nIt says:")


def test_a_mark_without_a_letter_is_written_out():
    assert "/\\u0338" in shown_line("a/\u0338b")
    assert "n\u0303" in shown_line("man\u0303ana")


LOOK_ALIKE = {
    "host p\u0430ypal.example": ("p\\u0430ypal", "xn--pypal-4ve.example"),
    "host \u0430\u0440\u0440\u04cf\u0435.com": ("\\u0430\\u0440\\u0440\\u04cf\\u0435", "xn--80ak6aa92e.com"),
    "server s: \u0441\u0440 -r / /tmp": ("\\u0441\\u0440",),
    "model at https://b\u00fccher.example/v1": ("xn--bcher-kva.example",),
    "server s: \uff43\uff50 x": ("\\uff43\\uff50",),
}


@each("line", LOOK_ALIKE)
def test_what_looks_like_something_else_is_marked(line):
    shown = shown_line(line)
    assert all(note in shown for note in LOOK_ALIKE[line]), shown


def test_other_letters_alone_are_nothing_odd():
    assert shown_line("/home/\u0416\u0443\u043a\u043e\u0432/\u4e2d\u6587") == (
        "  settings.s: /home/\u0416\u0443\u043a\u043e\u0432/\u4e2d\u6587"
    )


def test_a_value_of_the_projects_own_is_told(config):
    config.write_text(json.dumps({"servers": {"s": {"command": "${CALC}"}}, "secrets": {"CALC": "true"}}))
    seen = see(config.parent, config)
    assert seen.lines["secret CALC"].startswith("the project's own value (sha256 ")
    assert seen.lines["secrets.CALC"].startswith("a secret (sha256 ")
    assert seen.names == ("CALC",)


TWINS = [
    ({"a": {"b c": 1}}, {'a["b c"]': 1}),
    ({"x y": {"z w": 1}}, {'x y"]["z w': 1}),
    ({"a": ["b"]}, {"a[0]": "b"}),
    ({"a": "1"}, {"a": 1}),
    ({"a": "[]"}, {"a": []}),
    ({"a": '"b"'}, {"a": "b"}),
    ({"a": None}, {"a": "null"}),
    ({"a": {}}, {}),
]


@each(("one", "other"), TWINS)
def test_no_two_configs_have_the_same_lines(one, other):
    assert dict(flat(one)) != dict(flat(other))
    assert len(dict(flat({**one, "more": other}))) == len([*flat({**one, "more": other})])


@pytest.mark.parametrize("answer", [True, False])
def test_init_asks_to_trust_a_folder_that_has_packs(config, monkeypatch, answer):
    config.unlink()
    packs = config.with_name("packs")
    packs.mkdir()
    (packs / "dice.py").write_text("def roll() -> int:\n    'Roll.'\n    return 4\n")
    monkeypatch.setattr(click, "confirm", lambda *_, **__: answer)
    done = CliRunner().invoke(init)
    assert done.exit_code == 0
    assert f"Python of packs in {packs}" in done.output
    assert (find().untrusted is None) == answer
    assert ("Next: onetool trust, onetool check" in done.output) == (not answer)


def test_packs_that_run_with_the_own_config_are_said_to_see_its_secrets(config, monkeypatch, own_home):
    config.unlink()
    config.with_name("packs").mkdir()
    (config.parent / "packs" / "dice.py").write_text("def roll() -> int:\n    'Roll.'\n    return 4\n")
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    assert "all of your secrets" not in CliRunner().invoke(trust.trust).output
    (own_home / ".onetool" / "onetool.yaml").write_text("menu: run\n")
    assert "all of your secrets" in CliRunner().invoke(trust.trust).output
