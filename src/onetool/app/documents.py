"""Small documents in the state database, by kind:

    servers         what MCP servers offer, and what of that was approved; encrypted
    logins          the logins of people and programs; encrypted
    tokens          the tokens of `onetool tokens add`, by their hashes, and the revoked ones; encrypted
    page_sessions   the key of the page's sessions, and the ended ones; encrypted
    warnings        which warnings about the config commands have printed; never copied
    page_links      links that open the page as its owner, and the running servers; encrypted, and never copied

Only PostgreSQL is encrypted: `state.db` is private to its owner. In a project's folder, which may have come with a
`state.db`, the same kinds are signed with the random key of the user's own folder. Documents that decide about access
are encrypted, too, so that write access to the database alone lets nobody in. The key is derived from `cluster.key`.
Without `cluster.key`, the random key of the user's own folder is used, which is created when first needed: the database
is then for one machine. After a `cluster.key` was added, that random key still decrypts on its machine what it has
encrypted, and `onetool db init` there encrypts everything with the new key.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from onetool.config import Config
from onetool.config.find import own_folder
from onetool.core.errors import ConfigError
from onetool.core.flock import key_in
from onetool.core.os_files import UnsafeFileError
from onetool.core.state_folders import STATE_FILE, make_home
from onetool.database import Database
from onetool.database.documents import MAX_WAIT_S, Documents, Following
from onetool.database.encryption import Seal, SealError, Signature

KEY_FILE = "database.key"
DocumentKind = Literal["servers", "logins", "tokens", "page_sessions", "page_links", "warnings"]


class Keeping(NamedTuple):
    """The storage options of one kind of document."""

    is_sealed: bool = False
    follow: Following = "later"
    is_copied: bool = True  # by `onetool db import` and `export`


KINDS: dict[DocumentKind, Keeping] = {
    "servers": Keeping(is_sealed=True),
    "logins": Keeping(is_sealed=True),
    "tokens": Keeping(is_sealed=True),
    "page_sessions": Keeping(is_sealed=True),
    "page_links": Keeping(is_sealed=True, follow="never", is_copied=False),
    "warnings": Keeping(follow="never", is_copied=False),
}
COPIED: tuple[DocumentKind, ...] = tuple(kind for kind, keeping in KINDS.items() if keeping.is_copied)


def documents_in(
    database: Database,
    kind: DocumentKind,
    config: Config,
    follow: Following | None = None,
    *,
    is_source: bool = False,
) -> Documents:
    """Return the documents of a kind. `follow` overrides the default of the kind.

    With `is_source`, the documents are to be copied from this database, which may be a copy of a project's `state.db`.
    """
    keeping, seal = KINDS[kind], None
    if keeping.is_sealed and database.is_shared:
        seal = Seal(lambda: secrets_of(config))
    elif keeping.is_sealed and config.is_home_in_project and database.describe() == str(config.home / STATE_FILE):
        seal = Signature(lambda: secrets_of(config)[-1])
    elif keeping.is_sealed and is_source:
        seal = Signature(lambda: secrets_of(config)[-1], is_optional=True)
    return Documents(database, kind, seal, follow or keeping.follow)


def seal_anew(database: Database, config: Config) -> int:
    """Re-encrypt documents that use older keys with `cluster.key`.

    Older keys are `cluster.accepted_keys` and this machine's own key, which other replicas can't read. Returns the
    number of these documents. Does nothing if the key is not set. Raises SealError if a document needs a key that is
    not in the config.
    """
    if config.cluster is None or not config.cluster.has_key:
        return 0
    kinds = [documents_in(database, kind, config, "never") for kind in KINDS]
    for documents in kinds:
        documents.require_readable()
    return sum(documents.seal_anew(MAX_WAIT_S) for documents in kinds)


def secrets_of(config: Config) -> list[bytes]:
    """Return the secrets from which keys are derived. The first one is used to encrypt. Raises SealError.

    A `cluster.key` that is not set on this machine is an error: other replicas couldn't read documents encrypted with
    another key.
    """
    try:
        shared = [] if config.cluster is None else config.cluster.keys
    except ConfigError as error:
        raise SealError(f"encrypted documents in the database need cluster.key: {error}") from None
    own = _random_key(own_folder(), make=not shared)
    return [key for key in (*shared, own) if key]


def home_key(config: Config) -> bytes:
    """Return the random key of the servers that share a state folder, which is created when first needed.

    A project's folder may have come with a key. Raises SealError, and OSError for a folder that can't be created.
    """
    if config.is_home_in_project:
        return _random_key(own_folder(), make=True)
    make_home(config.home)
    return _random_key(config.home, make=True)


def _random_key(folder: Path, make: bool) -> bytes:
    file = folder / KEY_FILE
    try:
        return key_in(file, make)
    except UnsafeFileError as error:
        raise SealError(f"{file} is not used, because {error.why}; {error.hint or 'set cluster.key'}") from None
    except OSError as error:
        raise SealError(f"{file} can't be created ({error.strerror}); set cluster.key") from None
