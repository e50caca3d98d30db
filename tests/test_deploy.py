"""The files in deploy/ belong together, and to what the code takes. tests/replicas runs the balancers with them."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from onetool.cluster.cluster import DRAIN_S, REQUESTS_TIMEOUT_S
from onetool.config import load_config
from onetool.core.errors import ConfigError
from onetool.interfaces.cli.serve import serve
from onetool.interfaces.http.site import READY_PATH

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CONFIG = DEPLOY / "onetool.yaml"
VARIABLES = {
    "DATABASE_URL": "postgresql://onetool:password@postgres/onetool",
    "CLUSTER_KEY": "0123456789abcdef" * 4,
    "ONETOOL_TOKEN": "fedcba9876543210" * 4,
}


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_the_config_loads_with_its_variables_and_with_no_fewer():
    config = load_config(CONFIG, env=VARIABLES)
    assert (str(config.database), str(config.http.token)) == (VARIABLES["DATABASE_URL"], VARIABLES["ONETOOL_TOKEN"])
    assert config.http.host == "0.0.0.0"
    assert config.warnings == ()
    for name in VARIABLES:
        with pytest.raises(ConfigError, match=name):
            load_config(CONFIG, env={key: value for key, value in VARIABLES.items() if key != name}).cluster.require()


def test_the_services_have_what_the_config_takes(compose):
    replicas = {name: one for name, one in compose["services"].items() if name.startswith("replica-")}
    assert len(replicas) == 3
    for one in replicas.values():
        assert one["environment"].keys() == VARIABLES.keys()
    for file in ("haproxy.cfg", "nginx.conf"):
        named = set(re.findall(r"^\s+server (?:\S+ )?(replica-\d:\d+)", (DEPLOY / file).read_text(), re.MULTILINE))
        assert named == {f"{name}:8765" for name in replicas}


def test_the_services_name_files_that_are_there(compose):
    services = compose["services"].values()
    for one in services:
        for volume in one.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in compose["volumes"]
        if "build" in one:
            assert (DEPLOY / one["build"]["context"]).resolve() == ROOT
            assert (ROOT / one["build"]["dockerfile"]).is_file()
        assert set(one.get("depends_on", ())) <= compose["services"].keys()


def test_there_is_time_to_stop(compose):
    """For requests that are still taken, and for those that are under way then."""
    needed = DRAIN_S + 60 + REQUESTS_TIMEOUT_S
    assert int(unit_of("onetool.service")["TimeoutStopSec"]) > needed
    for name, one in compose["services"].items():
        assert not name.startswith("replica-") or int(one["stop_grace_period"].removesuffix("s")) > needed
    assert re.search(r"inter 1s ", (DEPLOY / "haproxy.cfg").read_text())
    assert DRAIN_S > 2


def unit_of(file):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / file)
    return unit["Service"]


def test_commands_are_ours(compose):
    commands = [shlex.split(unit_of("onetool.service")["ExecStart"])]
    commands += [yaml.safe_load(line) for line in re.findall(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.M)]
    assert len(commands) == 2
    for program, command, *options in commands:
        assert (Path(program).name, command) == ("onetool", "serve")
        serve.make_parser(serve.make_context("serve", [], resilient_parsing=True)).parse_args(options)


def test_the_image_has_what_the_lock_pins():
    """`pyproject.toml` allows ranges: without the lock, an image has what was released last."""
    installs = re.findall(r"pip install --no-cache-dir ([^&\\]*?) ?(?=&|\\|$)", (DEPLOY / "Dockerfile").read_text())
    assert installs == ["--require-hashes -r /src/deploy/requirements.lock", "--no-deps --no-build-isolation /src"]
    pinned, tested = locked(DEPLOY / "requirements.lock"), locked(ROOT / "requirements-dev.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["cluster"], *extras["otel"]]
    wanted += project["dependency-groups"]["build"]
    assert {re.sub(r"[\[ ].*", "", one).translate(DASHES).lower() for one in wanted} <= pinned.keys()
    assert pinned.items() <= tested.items()


DASHES = str.maketrans("._", "--")


def locked(path):
    """The version of each package in a lock; each has hashes."""
    entries = re.findall(r"^(\S+?)(?:\[\S+\])?==(\S+).*\\\n +--hash=sha256:", path.read_text(), re.M)
    assert len(entries) == len(re.findall(r"^\S", path.read_text(), re.M))
    return dict(entries)


def test_containers_of_compose_have_no_capabilities(compose):
    """As the pods below. PostgreSQL's own image begins as root and gives its folder to another user."""
    for name, one in compose["services"].items():
        rights = (one.get("cap_drop"), one.get("security_opt"))
        assert name == "postgres" or rights == (["ALL"], ["no-new-privileges:true"])


def test_the_passwords_of_compose_are_in_no_image_and_not_in_git():
    """`deploy/.env` is made by the command at the top of compose.yaml; the image copies the whole repository."""
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().splitlines()
    assert "**/.env" in (ROOT / ".dockerignore").read_text().splitlines()


# Kubernetes

KUBERNETES = DEPLOY / "kubernetes"
SCHEMAS = json.loads((ROOT / "tests" / "data" / "kubernetes" / "schemas.json").read_text())


@pytest.fixture(scope="module")
def manifests():
    """What kustomize reads, by kind."""
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    files = {"kustomization.yaml", "onetool.yaml", *listed}
    assert files == {file.name for file in KUBERNETES.iterdir()}
    found = [yaml.safe_load((KUBERNETES / name).read_text()) for name in listed]
    return {one["kind"]: one for one in found}


def pods(manifests):
    return [manifests[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job")]


def schema_errors(manifest):
    schema = {"$ref": f"#/definitions/{SCHEMAS['kinds'][manifest['kind']]}", "definitions": SCHEMAS["definitions"]}
    return [error.message for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(manifest)]


def test_manifests_fit_the_schemas_of_kubernetes(manifests):
    assert manifests.keys() | {"ConfigMap"} == SCHEMAS["kinds"].keys()
    assert {kind: found for kind, one in manifests.items() if (found := schema_errors(one))} == {}
    wrong = {**manifests["Service"], "spec": {"selectors": {}}}
    assert schema_errors(wrong) != []  # the schemas are strict


KUSTOMIZE = [["kustomize", "build"], ["kubectl", "kustomize"]]


def test_what_kustomize_builds_fits_too():
    command = next((command for command in KUSTOMIZE if shutil.which(command[0])), None)
    if command is None:
        pytest.skip("neither kustomize nor kubectl is installed")
    built = subprocess.run([*command, str(KUBERNETES)], capture_output=True, text=True, timeout=60, check=True)
    assert built.stderr == ""
    found = {one["kind"]: one for one in yaml.safe_load_all(built.stdout)}
    assert found.keys() == SCHEMAS["kinds"].keys()
    assert {kind: errors for kind, one in found.items() if (errors := schema_errors(one))} == {}
    config = found["ConfigMap"]
    assert config["data"] == {"onetool.yaml": (KUBERNETES / "onetool.yaml").read_text()}
    for pod in pods(found):
        assert {"name": "config", "configMap": {"name": config["metadata"]["name"]}} in pod["volumes"]
        assert pod["containers"][0]["image"].startswith("registry.example.com/onetool:")


def test_pods_run_without_rights(manifests):
    for pod in pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        rights = container["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        mounted = {one["name"]: one for one in container["volumeMounts"]}
        assert mounted.keys() == {one["name"] for one in pod["volumes"]}
        home = next(one["value"] for one in container["env"] if one["name"] == "ONETOOL_HOME")
        assert home.startswith(f"{mounted['state']['mountPath']}/")


def test_the_service_and_the_budget_find_the_replicas(manifests):
    spec = manifests["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == manifests["Service"]["spec"]["selector"] == labels
    budget = manifests["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels != manifests["Job"]["spec"]["template"]["metadata"]["labels"]
    assert budget["minAvailable"] < spec["replicas"]


def test_probes_and_the_grace_period_fit_the_server(manifests):
    pod, _ = pods(manifests)
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S + 60 + REQUESTS_TIMEOUT_S
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == READY_PATH
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < DRAIN_S  # it gets no requests when it stops taking them
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["ports"][0]["containerPort"] == load_config(KUBERNETES / "onetool.yaml", env=IN_PODS).http.port


IN_PODS = {**VARIABLES, "METRICS_TOKEN": "0011223344556677" * 2}


def test_the_config_of_pods_loads_with_what_they_set(manifests):
    config = load_config(KUBERNETES / "onetool.yaml", env=IN_PODS)
    assert config.warnings == ()
    assert str(config.metrics.token) == IN_PODS["METRICS_TOKEN"]
    told = (KUBERNETES / "kustomization.yaml").read_text()
    for pod in pods(manifests):
        (container,) = pod["containers"]
        program, option, file, *command = container["command"]
        assert (program, option, file) == ("onetool", "--config", "/etc/onetool/onetool.yaml")
        assert command in (["serve"], ["db", "init"])
        own = {one["name"] for one in container["env"]}
        assert all(name in own or f"--from-literal={name}=" in told for name in IN_PODS)


# One stateful server for all replicas

STATEFUL = DEPLOY / "stateful-server"


def test_a_stateful_server_is_one_process_that_starts_again():
    unit = unit_of("stateful-server/memory.service")
    assert unit["Restart"] == "always"
    program, *command = shlex.split(unit["ExecStart"])
    deployment, service = yaml.safe_load_all((STATEFUL / "kubernetes.yaml").read_text())
    assert {one["kind"]: schema_errors(one) for one in (deployment, service)} == {"Deployment": [], "Service": []}
    spec = deployment["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["template"]["metadata"]["labels"] == spec["selector"]["matchLabels"] == service["spec"]["selector"]
    (container,) = spec["template"]["spec"]["containers"]
    assert Path(program).name == container["command"][0] == "onetool"
    for words in (command, container["command"][1:]):
        at = words.index("--")
        assert words[:2] == ["serve", "--bare"]
        serve.make_parser(serve.make_context("serve", [], resilient_parsing=True)).parse_args(words[1:at])
        assert words[at + 1 :]


def test_replicas_reach_a_stateful_server_as_its_config_says():
    """By the service's name and the token, from which the comment of the config makes their block."""
    token = "0123456789abcdef" * 2
    config = load_config(STATEFUL / "onetool.yaml", env={"MEMORY_TOKEN": token})
    assert (str(config.http.token), config.http.host, config.cluster) == (token, "0.0.0.0", None)
    (block,) = re.findall(r"^# +(servers: .*)$", (STATEFUL / "onetool.yaml").read_text(), re.M)
    found = yaml.safe_load(block)["servers"]["memory"]
    assert found == {"url": f"http://{config.http.hosts[0]}:{config.http.port}/mcp", "auth": "${MEMORY_TOKEN}"}
