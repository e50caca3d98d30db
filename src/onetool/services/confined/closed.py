"""Places that no tool opens, whatever the allowed folders are: where people and programs keep keys and passwords.

The list is short on purpose. It holds the folders and files in which well-known programs keep what lets one log in
somewhere, and where the system shows processes, their memory and devices as files. It is a net below the allowed
folders, not a replacement for them: what else is secret in a folder that was allowed can be read there.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache

OWN = ".onetool"  # closed wherever such a folder is: secrets, sessions, results, servers, the config

SYSTEM = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")

# Below the home folder. Whole folders, where a program keeps little else in them.
# fmt: off
KEPT_AT_HOME = (
    ".ssh", ".gnupg", ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".git-credentials", ".config/git/credentials",
    ".aws", ".azure", ".boto", ".kube", ".docker", ".config/containers/auth.json", ".config/gcloud", ".config/doctl",
    ".config/hcloud", ".config/rclone", ".oci", ".fly", ".terraform.d/credentials.tfrc.json", ".vault-token",
    ".npmrc", ".yarnrc.yml", ".pypirc", ".config/pypoetry/auth.toml", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
    ".composer/auth.json", ".config/composer/auth.json",
    ".config/gh", ".config/glab-cli", ".config/hub", ".config/github-copilot", ".config/op", ".op", ".config/sops",
    ".config/age", ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/keepassxc", ".config/Bitwarden",
    "Library/Keychains", "AppData/Roaming/Microsoft/Credentials", "AppData/Roaming/Microsoft/Protect",
    # Browsers and mail: passwords, and cookies that are as good as passwords.
    ".mozilla", ".thunderbird", "snap/firefox", ".var/app/org.mozilla.firefox",
    ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/chromium",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Chromium",
    "Library/Application Support/Firefox", "Library/Application Support/BraveSoftware",
    "Library/Application Support/Microsoft Edge", "Library/Application Support/Arc",
    "Library/Safari", "Library/Cookies",
    "Library/Containers/com.apple.Safari", "Library/Mail",
    "AppData/Local/Google/Chrome", "AppData/Local/Microsoft/Edge", "AppData/Local/BraveSoftware",
    "AppData/Roaming/Mozilla",
)
# fmt: on

# What moves some of them elsewhere.
MOVED = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NETRC",
    "NPM_CONFIG_USERCONFIG",
    "PASSWORD_STORE_DIR",
    "PGPASSFILE",
)
BASES = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}


VARIABLES = ("HOME", "USERPROFILE", *MOVED, *BASES.values())


def closed_places(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """All of them as absolute paths; most of them are not there."""
    return _closed(tuple((name, value) for name in VARIABLES if (value := env.get(name))))


@lru_cache(maxsize=8)
def _closed(variables: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Made once: every call that reads a file asks."""
    env = dict(variables)
    paths = (*SYSTEM, *_at_home(env), *_moved(env))
    return tuple(dict.fromkeys(os.path.normpath(path) for path in paths if os.path.isabs(path)))


def _at_home(env: Mapping[str, str]) -> Iterator[str]:
    for home in dict.fromkeys(_homes(env)):
        yield from (os.path.join(home, kept) for kept in KEPT_AT_HOME)


def _homes(env: Mapping[str, str]) -> Iterator[str]:
    """As the environment has it, and as the system has it: a variable alone must not open anything."""
    yield from (home for name in ("HOME", "USERPROFILE") if (home := env.get(name)))
    try:
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):  # not on this system; a container's user without a name
        return


def _moved(env: Mapping[str, str]) -> Iterator[str]:
    for name in MOVED:
        yield from filter(None, env.get(name, "").split(os.pathsep))
    for start, name in BASES.items():
        if base := env.get(name):
            yield from (os.path.join(base, kept[len(start) :]) for kept in KEPT_AT_HOME if kept.startswith(start))
