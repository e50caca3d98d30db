"""A config file -> Config, or a ConfigError with everything that is wrong."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from onetool.config.find import state_home
from onetool.config.model import Config, Fs, Keys
from onetool.config.node import Findings, in_order
from onetool.config.texts import read_texts
from onetool.core.errors import ConfigError
from onetool.services.secrets import Secrets


def load_config(path: Path | None, *, env: Mapping[str, str] = os.environ, found: bool = False) -> Config:
    """The config of this file and those it includes; without a file, the defaults. `found`: nobody named the file."""
    home = state_home(path and Path(path).absolute(), env)
    if path is None:
        return Config(home=home, secrets=load_secrets(None, env=env))

    from onetool.config.include import read_files  # here, because a start without a file need not load the YAML parser
    from onetool.config.placeholders import fill
    from onetool.config.secret_values import read_secrets
    from onetool.config.shape import read_fields

    path = Path(path).absolute()
    findings = Findings()
    root, included = read_files(path, findings)
    secrets = read_secrets(root.value.pop("secrets", None), home, env, findings)
    values = read_fields(fill(root, secrets, findings), Keys, findings)
    values["prompts"], texts = read_texts(values.get("prompts"), path.parent, findings)
    if findings.errors or secrets is None:
        raise ConfigError(in_order(findings.errors))
    return Config(
        **values,
        include=included,
        texts=texts,
        secrets=secrets,
        path=path,
        found=found,
        home=home,
        warnings=in_order(findings.warnings),
    )


def load_secrets(path: Path | None, *, env: Mapping[str, str] = os.environ) -> Secrets:
    """The secrets alone: also of a config that can't be used yet, because one of them is missing."""
    home = state_home(path and Path(path).absolute(), env)
    file = home / "secrets.yaml"
    if path is None and not file.exists():
        return Secrets(env=env, file=file)

    from onetool.config.include import read_files
    from onetool.config.secret_values import read_secrets

    findings = Findings()
    node = None if path is None else read_files(Path(path).absolute(), findings)[0].value.get("secrets")
    secrets = read_secrets(node, home, env, findings, may_be_missing=True)
    if secrets is None:
        raise ConfigError(in_order(findings.errors))
    return secrets


def load_roots(path: Path, *, env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """`fs.roots` alone: also of a config that can't be used otherwise. None of them where they can't be read."""
    from onetool.config.include import read_files
    from onetool.config.placeholders import fill
    from onetool.config.shape import read

    findings = Findings()
    try:
        root = read_files(Path(path).absolute(), findings)[0]
    except ConfigError:
        return ()
    if "fs" not in root.value:
        return ()
    filled = fill(replace(root, value={"fs": root.value["fs"]}), Secrets(env=env), findings)
    fs = read(filled.value["fs"], Fs, findings)
    return fs.roots if isinstance(fs, Fs) and not findings.errors else ()
