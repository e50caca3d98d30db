"""2-ot-pack.md: one test for each scenario of `ot.notify`, named after it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from specs.ot import Agent

TOPICS = [{"pattern": "notes*", "file": "notes.yaml"}, {"pattern": "build:*", "file": "build.yaml"}]
MESSAGE = "Remember to review PR #123"


@pytest.fixture
def agent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Agent(tmp_path, topics=TOPICS) as agent:
        yield agent


def written(agent, file="notes.yaml"):
    """The documents in a topic's file."""
    return list(yaml.safe_load_all((agent.folder / file).read_text()))


# Requirement: Notify Message


def test_send_notification(agent):
    told = agent.value(f'ot.notify(topic="notes", message="{MESSAGE}")')
    assert told.startswith("OK: ")
    [first] = written(agent)
    assert (first["topic"], first["message"]) == ("notes", MESSAGE)
    agent.value('ot.notify(topic="notes:more", message="and another one")')
    assert [one["message"] for one in written(agent)] == [MESSAGE, "and another one"]
    assert not (agent.folder / "build.yaml").exists()


def test_no_matching_topic(agent):
    assert agent.value('ot.notify(topic="unknown:topic", message="test")') == "SKIP: no matching topic"
    assert agent.reads('ot.notify(topic="unknown:topic", message="test")') == "SKIP: no matching topic"
    assert not (agent.folder / "notes.yaml").exists()


# What the decisions add


def test_without_topics(tmp_path):
    with Agent(tmp_path) as agent:
        assert agent.value('ot.notify(topic="notes", message="test")') == "SKIP: no matching topic"


@pytest.mark.parametrize("message", ["", "---\na: b\n...\n", "a\n--- b", "no", "{x: [", "é\U0001f600\x07", "x\n" * 500])
def test_any_message_is_read_as_that_message(agent, message):
    agent.value(f"ot.notify(topic='notes', message={message!r})")
    agent.value("ot.notify(topic='notes', message='after')")
    assert [one["message"] for one in written(agent)] == [message, "after"]


def test_many_at_once(agent):
    def tell(number):
        return agent.value(f'[ot.notify(topic="build:x", message=f"{number}-{{n}}") for n in range(10)]')

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tell, range(4)))
    messages = {one["message"] for one in written(agent, "build.yaml")}
    assert messages == {f"{number}-{n}" for number in range(4) for n in range(10)}


def test_nothing_is_written_outside_of_the_allowed_folders(tmp_path, monkeypatch):
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with Agent(inside, topics=[{"pattern": "*", "file": "../outside.yaml"}]) as agent:
        result = agent.run('ot.notify(topic="notes", message="test")')
    assert not result.ok or not str(result.data).startswith("OK")
    assert not (tmp_path / "outside.yaml").exists()
