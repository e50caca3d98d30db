"""Loads a config file into a `Config`, or raises ConfigError with all mistakes; and lists the files that a config was
read from.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onetool.config.file_checks import CONFIG_FILE, SECRETS_FILE, STATE, is_inside, require_no_links, require_ownership
from onetool.config.find import (
    FOLDER,
    Found,
    nearest_folder,
    own_folder,
    place_of,
    state_home,
    trust_store,
    user_config,
    user_home,
)
from onetool.config.findings import Findings, absolute, in_order
from onetool.config.model import PROMPTS_FILE, Config, FsConfig, Keys, PromptTexts
from onetool.config.trust import Trusted
from onetool.core.errors import ConfigError, Mistake
from onetool.core.model_providers import PROVIDER_KEYS
from onetool.services.secrets import Secret, Secrets
from onetool.sources.mcp_servers.program import SAFE_PATH, python_module
from onetool.sources.mcp_servers.settings import PlacedServer, ServerSettings
from onetool.sources.packs.importing import parts_of

if TYPE_CHECKING:
    from onetool.config.read import Written

OWN_VARIABLE = "ONETOOL_TOKEN"  # the usual variable of http.token


def load_config(at: Found | Path | None, *, env: Mapping[str, str] = os.environ) -> Config:
    """Return the config of this file and the files that it includes; without a file, the defaults.

    A path is trusted because the user named it. A config that was found may be a project's, which gets fewer of the
    user's secrets.
    """
    found = at if isinstance(at, Found) else _found_from_path(at, env)
    path = found.config and found.config.absolute()
    home = state_home(path, env)
    _check_state(home, env)
    if path is None:
        return Config(home=home, secrets=load_secrets(found, env=env), whose=found.whose, folder=found.folder)
    from onetool.config.check import read_fields  # a start without a file need not load the YAML parser
    from onetool.config.fill import fill
    from onetool.config.read import read_config

    findings = Findings()
    written = read_config(path, findings)
    data = written.data
    secrets = _secrets(data.pop("secrets", None), found, home, env, findings)
    values = read_fields(fill(data, secrets, findings, _names_stored_here(found, data)), Keys, "", findings)
    values["servers"] = _with_folders(values.get("servers"), written, path, found.trusted)
    _refuse_prompts_elsewhere(values.get("prompts"), found, findings)
    if secrets is not None:
        _refuse_links(secrets.files, found, findings)
    values["prompts"], texts = _read_prompts(values.get("prompts"), path.parent, findings)
    if findings.errors or secrets is None:
        raise ConfigError(in_order(findings.errors))
    read = (*written.included, secrets.file, values["prompts"])
    require_ownership([file for file in read if file], user_home(env), trust_store(env).owners)
    moved = [  # commands that resolve to another program than when the project was trusted
        Mistake(
            message=one, file=str(found.config), key="servers", hint="confirm it: onetool trust", severity="warning"
        )
        for one in (found.trusted.moved if found.trusted else ())
    ]
    return Config(
        **values,
        include=written.included,
        texts=texts,
        secrets=secrets,
        path=path,
        home=home,
        whose=found.whose,
        folder=found.folder,
        project_packs=found.project_packs,
        warnings=(*in_order(findings.warnings), *moved),
    )


def add_servers(config: Config, servers: Mapping[str, ServerSettings]) -> Config:
    """Return the config with additional servers, or with a bare one instead of its own.

    Raises ConfigError if the config already has a server of that name.
    """
    if any(isinstance(server, PlacedServer) and server.is_bare for server in servers.values()):
        return replace(config, servers=servers)
    for name in servers.keys() & config.servers.keys():
        message, hint = f"the config already has a server {name}", "choose another name for yours: --name NAME"
        raise ConfigError([Mistake(message=message, file=str(config.path), key=f"servers.{name}", hint=hint)])
    return replace(config, servers={**config.servers, **servers}) if servers else config


def load_secrets(at: Found | Path | None, *, env: Mapping[str, str] = os.environ) -> Secrets:
    """Return the secrets alone, even if the config can't be used yet because a secret is missing."""
    found = at if isinstance(at, Found) else _found_from_path(at, env)
    path = found.config and found.config.absolute()
    home = state_home(path, env)
    file = home / SECRETS_FILE
    if path is None and not file.exists():
        return Secrets(env=env, file=file)
    from onetool.config.read import read_config

    findings = Findings()
    named = None if path is None else read_config(path, findings).data.get("secrets")
    secrets = _secrets(named, found, home, env, findings, may_be_missing=True)
    if secrets is None:
        raise ConfigError(in_order(findings.errors))
    return secrets


def load_roots(path: Path) -> tuple[str, ...]:
    """Return `fs.roots` alone, even if the config has other mistakes; empty if they can't be read."""
    from onetool.config.check import convert
    from onetool.config.fill import fill
    from onetool.config.read import read_config

    findings = Findings()
    data = read_config(Path(path).absolute(), findings).data
    if "fs" not in data:
        return ()
    filled = fill({"fs": data["fs"]}, Secrets(env=os.environ), findings)
    fs = convert(filled["fs"], FsConfig, "fs", findings)
    return fs.roots if isinstance(fs, FsConfig) and not findings.errors else ()


def has_database(path: Path) -> bool:
    """Return whether a config has a database; False if the config can't be read."""
    from onetool.config.read import read_config

    return "database" in read_config(path.absolute(), Findings()).data


def token_places(path: Path) -> list[tuple[str, int]]:
    """Return the file and line of each entry of `http.tokens`, in order."""
    from onetool.config.read import read_config

    written = read_config(path, Findings())
    http = written.data.get("http")
    tokens = http.get("tokens") if isinstance(http, dict) else None
    return [written.places.at(f"http.tokens[{at}]")[:2] for at in range(len(tokens) if isinstance(tokens, list) else 0)]


def _found_from_path(path: Path | None, env: Mapping[str, str]) -> Found:
    """Return a `Found` for a path that a caller passed. None means the user's own folder without a config."""
    if path is None:
        return Found(config=None, folder=own_folder(env), whose="own")
    is_own = path.absolute() == own_folder(env) / CONFIG_FILE
    return Found(config=path, folder=path.absolute().parent, whose="own" if is_own else "named")


def _secrets(
    named: Any,
    found: Found,
    home: Path,
    env: Mapping[str, str],
    findings: Findings,
    may_be_missing: bool = False,
) -> Secrets | None:
    """Return the secrets of a config.

    From the environment and the keyring, a project gets only the secrets that the user has accepted.
    """
    from onetool.config.fill import read_secrets

    if found.whose != "project":
        return read_secrets(named, home, env, findings, may_be_missing)
    folder = found.folder if named is None else findings.places.folder("secrets")
    if not is_inside(absolute(folder, named if isinstance(named, str) else SECRETS_FILE), found.folder.parent):
        message = "a project's secrets must be in its own folder, and this file is elsewhere"
        findings.error("secrets", message, "store them with the project: onetool auth set NAME; or use --config FILE")
        return None
    names = found.trusted.names if found.trusted is not None else frozenset[str]()
    secrets = read_secrets(
        named, found.folder, {name: env[name] for name in names & env.keys()}, findings, may_be_missing
    )
    if secrets is not None:
        secrets.only = names
        if _refuse_links(secrets.files, found, findings):
            return None
    return secrets


def _refuse_prompts_elsewhere(named: Any, found: Found, findings: Findings) -> None:
    """Report a prompts file behind a link that leads out of the project, unless `onetool trust` showed its path."""
    file, project = named if isinstance(named, Path) else found.folder / PROMPTS_FILE, found.folder.parent
    leads_out = os.path.normpath(file).startswith(f"{project}{os.sep}") and not is_inside(file, project)
    if found.whose == "project" and leads_out:
        message = f"the path {file} has a symbolic link that leads out of the project"
        findings.error("prompts", message, "move the file into the project, or use its real path")


def _read_prompts(named: Any, beside: Path, findings: Findings) -> tuple[Path | None, PromptTexts]:
    """Return the path and the content of the prompts file that the config names, or of the default file."""
    if not isinstance(named, Path | None):  # not a path: that mistake has been reported
        return None, PromptTexts()
    path = named or beside / PROMPTS_FILE
    if not path.exists():
        if named:  # it may be created later
            message = f"the file {path} does not exist"
            findings.warnings.append(Mistake(message=message, file=str(beside), key="prompts", severity="warning"))
        return named, PromptTexts()
    from onetool.config.check import convert
    from onetool.config.read import ConfigFileError, mistake_of, read_yaml

    try:
        document = read_yaml(path)
    except ConfigFileError as refused:
        findings.errors.append(mistake_of(refused, path))
        return path, PromptTexts()
    own = Findings.of(path, document)
    texts = convert(document.data, PromptTexts, "", own)
    findings.errors += own.errors
    findings.warnings += own.warnings
    return path, texts if isinstance(texts, PromptTexts) else PromptTexts()


def _refuse_links(files: list[Path], found: Found, findings: Findings) -> list[Path]:
    """Report and return links to secrets that a project could change after `onetool trust` showed their path."""
    project = found.folder.parent
    inside = [file for file in files if os.path.normpath(file).startswith(f"{project}{os.sep}")]
    links = [file for file in inside if found.whose == "project" and not is_inside(file, project)]
    for file in links:
        message = f"the path {file} has a symbolic link to a secret outside the project"
        findings.error("", message, "use the real path of the file")
    return links


def _with_folders(servers: Any, written: "Written", config: Path, trusted: Trusted | None) -> Any:
    """Set the working folder of servers to that of their config: the current folder may contain other programs."""
    if not isinstance(servers, dict):  # there are none, or their mistakes were reported
        return servers or {}
    placed: dict[str, ServerSettings] = {}
    for name, server in servers.items():
        if server.command:
            values: dict[str, Any] = msgspec.structs.asdict(server)
            path = written.data["servers"][name].get("cwd")
            if server.cwd is None or path is None:
                server = PlacedServer(**{**values, "cwd": place_of(config)})
            else:
                if not os.path.isabs(os.path.expanduser(path)):  # relative to the config's folder
                    from onetool.core.yaml import child

                    folder = written.places.folder(child("servers", name))
                    path = os.path.normpath(os.path.join(os.path.relpath(folder, config.parent), path))
                server = PlacedServer(**values, written_cwd=path)
            if trusted is not None:  # a project's server may start only the program that was trusted
                if name not in trusted.own_modules and python_module((server.command or "", *server.args)) is not None:
                    server = replace(server, env={**server.env, SAFE_PATH: Secret("1", shown="1")})
                if (started := (trusted.programs or {}).get(name)) is not None:
                    server = replace(server, project=str(place_of(config)), trusted=started.program)
        placed[name] = server
    return placed


def _check_state(home: Path, env: Mapping[str, str]) -> None:
    """Check the owner of the state folder and its parts, or only of the parts if a project shares the folder."""
    is_ours_alone = home.name == FOLDER or bool(env.get("ONETOOL_HOME"))
    require_no_links(home, is_ours_alone)
    parts = [home / part for part in STATE]
    if is_ours_alone:
        parts.append(home)
    require_ownership(parts, user_home(env), trust_store(env).owners)


def _names_stored_here(found: Found, data: dict[str, Any]) -> frozenset[str]:
    """Return the secrets that a project's servers get only from the project: provider keys and the HTTP token."""
    if found.whose != "project":
        return frozenset()
    from onetool.config.fill import names_in

    http = data.get("http")
    token_names = names_in(http.get("token")) if isinstance(http, dict) else ()
    return frozenset({*PROVIDER_KEYS, OWN_VARIABLE, *token_names})


# The files and folders that a config is read from, and those that may contain its `fs.roots`


def pack_paths(config: Config) -> list[Path]:
    """Return the packs that the config names, and the folders `packs` beside it and in the nearest `.onetool`."""
    beside = (_config_folder(config) / "packs", config.project_packs)
    paths = [*config.packs, *(path for path in beside if path and path.is_dir() and path not in config.packs)]
    owned = [*paths]
    for path in paths:  # every file and folder that may be imported has its own owner
        with suppress(OSError):  # missing or unreadable: the loader reports it
            owned += (part.path for part in parts_of(path) if part.place)
    require_ownership(owned, user_home(os.environ), trust_store().owners)
    return paths


def setting_files(config: Config, *, finds: bool) -> list[Path]:
    """Return the files of the settings: config, prompts and secrets; with `finds`, also possible places of a config."""
    beside = _config_folder(config)
    place = beside / CONFIG_FILE if config.path is None and finds else config.path
    named = (place, config.prompts or beside / PROMPTS_FILE, config.secrets.file, *config.secrets.files)
    return list(dict.fromkeys(file for file in named if file))


def code_files(config: Config) -> list[Path]:
    """Return the includes, and the files and folders of packs."""
    beside = (_config_folder(config) / "packs", config.project_packs)
    return list(dict.fromkeys((*config.include, *config.packs, *(path for path in beside if path))))


def roots_within(config: Config) -> list[str] | None:
    """Return the folders that may contain the roots of a config: a project's own folder, and the roots of the user's
    own config.

    None allows any folder, for the user's own config and one passed by path.
    """
    if config.whose != "project" or config.path is None:
        return None
    own = user_config()
    return [str(place_of(config.path)), *(load_roots(own) if own.is_file() else ())]


def _config_folder(config: Config) -> Path:
    """Return the folder of the config, or the folder where it would be."""
    if config.folder is not None:
        return config.folder
    return config.path.parent if config.path else nearest_folder()
