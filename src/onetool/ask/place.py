"""Where a provider is: its base URL, read once and strictly, and whom that lets be called: this host, and no other."""

from onetool.ask.errors import NoModelError
from onetool.handlers.http.addresses import GLOBAL, reach
from onetool.handlers.http.hosts import AllowedHosts, HostRule
from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.url import Url, clean, is_address, parse_url

SETTING = "ask.base_url"


class Place:
    """`with_key`: whether a key goes there. `setting` is what the URL stands in, for messages."""

    def __init__(self, text: str, with_key: bool = False, setting: str = SETTING) -> None:
        self._url = _read(text.strip(), setting)
        self.text = self._url.text
        self.setting = setting
        self.hosts = _hosts(self._url, with_key)

    def url(self, path: str) -> Url:
        """Of something below it."""
        return self._url._replace(target=self._url.target + clean(path))

    @property
    def authority(self) -> str:
        return self._url.authority

    @property
    def is_loopback(self) -> bool:
        host = self._url.host
        return host in ("localhost", "::1") or host.endswith(".localhost") or (is_address(host) and host[:4] == "127.")


def _read(text: str, setting: str) -> Url:
    """Without a slash at its end: paths begin with one."""
    try:
        if "?" in text or "#" in text:
            raise Refusal("it ends with its path, and can have no ? or # in it")
        url = parse_url(text)
    except Refusal as refusal:
        hints = (*refusal.hints, "it looks like this: http://127.0.0.1:8000/v1")
        raise NoModelError(f"{setting} can't be used: {refusal}", "no_provider", hints) from None
    return url._replace(target=url.target.rstrip("/"))


def _hosts(url: Url, with_key: bool) -> AllowedHosts:
    if url.scheme == "https" or not with_key:
        return AllowedHosts([HostRule(url.authority, allow_private=True)])
    # Connections are kept by the rule that they were made by. This one is spelled otherwise, which means the same: a
    # connection that was made where no key was to be sent is not used for one.
    host = url.authority if is_address(url.host) else f"{url.host}.:{url.port}"
    return _Near([HostRule(host, allow_private=True)])


class _Near(AllowedHosts):
    """Without TLS everybody on the way can read a key: it goes to this machine and its network alone."""

    def check_address(self, rule: HostRule, address: str, url: Url) -> None:
        super().check_address(rule, address, url)
        if reach(address) == GLOBAL:
            raise Refusal(
                f"the key is not sent to {url.authority}: with http:// everybody on the way could read it",
                [f"write https:// in {SETTING}, or take the key away where the server needs none"],
            )
