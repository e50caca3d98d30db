"""The fixture of `make conformance` works, and offers all that the official suite asks for. No Node is needed here."""

import json
from pathlib import Path

import pytest
from helpers import cli

from onetool.app import App

CONFIG = Path(__file__).parent / "fixture" / "onetool.yaml"
TOOLS = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_reconnection",
    "test_elicitation",
    "test_sampling",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_capabilities",
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "json_schema_2020_12_tool",
    "test_custom_headers",
]
PROMPTS = [
    "test_simple_prompt",
    "test_prompt_with_arguments",
    "test_prompt_with_embedded_resource",
    "test_prompt_with_image",
    "test_input_required_result_prompt",
]
RESOURCES = ["test://static-text", "test://static-binary", "test://watched-resource", "test://template/{id}/data"]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONETOOL_HOME", str(tmp_path_factory.mktemp("state")))
        app = App.open(CONFIG)
        yield app
        app.close()


def test_nothing_is_wrong_with_it(tmp_path):
    done = cli("--config", str(CONFIG), "check", cwd=tmp_path, env={"ONETOOL_HOME": str(tmp_path)})
    assert json.loads(done.stdout) == []
    assert done.returncode == 0


def test_it_offers_what_the_suite_asks_for(app):
    tools = app.catalog.registry.snapshot()
    assert [name for name in TOOLS if app.config.aliases.get(name, name) not in tools] == []
    assert set(app.config.aliases) <= set(TOOLS)
    assert set(app.catalog.prompts) == set(PROMPTS)
    assert {one.uri for one in app.catalog.resources} == set(RESOURCES)


def test_a_job_says_whether_it_may_become_a_task(app):
    jobs = {spec.name: spec.task for spec in app.catalog.registry.snapshot() if spec.task}
    assert jobs == {
        "jobs.slow_compute": "optional",
        "jobs.failing_job": "required",
        "jobs.protocol_error_job": "optional",
        "jobs.confirm_delete": "optional",
        "jobs.multi_input": "optional",
        "jobs.test_tool_with_task": "required",
    }


def test_the_lock_pins_by_hash_and_names_no_place():
    lock = json.loads((Path(__file__).parent / "npm" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert len(packages) > 100
    assert [name for name, package in packages.items() if "integrity" not in package or "resolved" in package] == []
