"""Takes out of a text what is nobody's business: secrets, paths, addresses, names of people.

    a secret that lies in the node's directory   <secret>      wherever it stands, in hex or base64
    what looks like one                          <secret>      invites, tokens, keys, passwords
    an address of mail                           <mail>
    a path                                       <dir>/...     below the node's directory; <home>,
                                                 <packages>/.. of installed code, else <path>
    an address that others can reach             <ip-1>        the same one always the same
    the name of a host                           <host-1>      as that, wherever it stands
    the names of this host and its user          <host>, <user>

Sequences that would colour or move a terminal go first: a secret may stand behind one. Loopback
and private addresses stay, as do ids of nodes, peers, vertices and chains: everybody in
the network knows them, and without them nobody could help.
"""

import base64
import getpass
import ipaddress
import pwd
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from daa_node import config as node_config
from daa_node.adapters.token_files import ADMIN_NAME, READ_NAME
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.report import plain
from daa_node.config import NodeConfig
from daa_node.genesis import Genesis

SECRET, PATH = "<secret>", "<path>"
SECRET_FILE_BYTES_MAX = 64 * 1024
SECRET_WORD = re.compile(r"[A-Za-z0-9+/=_-]{16,}")
NAME_CHARACTERS_MIN = 4  # a shorter one is in half of all words
PATH_CHARACTERS_MIN = 4  # as that: "/" is in every one
COMMON_NAMES = frozenset({"root", "user", "node", "localhost", "host", "admin", "daemon", "train"})
# The same on all hosts, and of no person: names of protocols, and what systems have.
KEPT = ("/daa/", "/usr/lib/", "/lib/", "/lib64/", "/proc/", "/sys/", "/dev/", "/usr/bin/")

# In front of a value: `HF_TOKEN=`, `'client_secret': `, `--password `, `\"api_key\": \"`.
_WORDS = (
    r"token|secret(?:[_-]\w{1,32})?|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|private[_-]?key|credentials?|authorization|cookie"
)
_SECRET_KEY = re.compile(rf"(?i)(^|[._-])({_WORDS})$")
_SCHEME = r"(?:(?:basic|bearer|digest)\s+)?"
_UNQUOTED = r"[^\s\"',;}&]+"
_LIKE_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)daa1[a-z2-7]{20,}"), "<invite>"),
    (re.compile(r"(?is)-----BEGIN [^-]*PRIVATE KEY-----.*?(-----END [^-]*-----|\Z)"), SECRET),
    # as GitHub, Hugging Face and others begin theirs
    (
        re.compile(
            r"\b(hf|gh[oprsu]|github_pat|glpat|sk|rk|xox[a-z]|xapp|npm|pypi|dckr_pat)"
            r"[-_][A-Za-z0-9_-]{16,}"
        ),
        SECRET,
    ),
    (re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"), SECRET),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), SECRET),  # a JSON Web Token
    (re.compile(r"(?i)\b(bearer)\s+[^\s\"',;]+"), rf"\1 {SECRET}"),
    (re.compile(r"(?<=://)[^\s/\"'<>]+(?=@)"), SECRET),
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(\.[\w-]{1,63}){1,8}"), "<mail>"),
    (re.compile(r"(?i)\b(cookie\"?\s*:\s*\"?)[^\n\"']+"), rf"\1{SECRET}"),
    # quoted: all up to the same quote, blanks, too
    (
        re.compile(rf"(?i)({_WORDS})(\\*[\"']?\s*(?:=>|[=:])\s*)(\\*[\"'])(?:\\.|[^\n\\])*?\3"),
        rf"\1\2\3{SECRET}\3",
    ),
    (
        re.compile(
            rf"(?i)({_WORDS})((?>\\*[\"']?\s*(?:=>|[=:])\s*\\*[\"']?{_SCHEME}))"
            rf"(?!{SECRET}){_UNQUOTED}"
        ),
        rf"\1\2{SECRET}",
    ),
    (
        re.compile(rf"(?i)(?<![\w-])(--[\w-]{{0,32}}(?:{_WORDS})\s+)(\"[^\"\n]*\"|{_UNQUOTED})"),
        rf"\1{SECRET}",
    ),
    (
        re.compile(r"(?i)([?&][\w-]{0,32}(?:key|sig|signature|auth|code)=)[^\s&#\"']+"),
        rf"\1{SECRET}",
    ),
)
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_HOST_KEY = re.compile(r"(^|[._])hosts?$")
_URL_HOST = re.compile(r"(://(?:<secret>@)?)([A-Za-z0-9.-]*[A-Za-z][A-Za-z0-9.-]*)")
_HOST_FIELD = re.compile(r"(\"(?:[\w.]*[._])?host\":\s*)\"([A-Za-z0-9.-]+)\"")
_MULTIADDR = re.compile(r"/(?:ip4|ip6|dns|dns4|dns6|p2p)/")
# Not behind a letter or another slash: what is left is no link, and no `a/b`. Nor behind `::`: it
# ends an address, as in /ip6/::/tcp/4001.
_ANY_PATH = re.compile(r"(?<![\w/.>])(?<!::)(?:~[\w-]*)?/(?!/)[^\s'\",:;()<>|`\[\]{}]+")
_FILE_URL = re.compile(r"(?i)\bfile://[^\s'\",;()<>|`\[\]{}]+")
_NAMED = re.compile(r"/(dns[46]?)/([^/\s\"',;)]+)")
_IP4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_IP6 = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{0,4}:){2,}[0-9a-fA-F]{0,4}(?!\w)")
_DOTTED = re.compile(r"[\w-]+(?:\.[\w-]+)*")
LABELS_MAX = 10  # of the name of a host


class Redactor:
    """One bundle's: it gives the same address the same name throughout."""

    def __init__(
        self,
        secrets: Iterable[str],
        places: Mapping[str, str],
        names: Mapping[str, str],
        hosts: Iterable[str] = (),
    ) -> None:
        """`places`: what stands for a path and all below it; `names`: for a whole word.

        `hosts`: names of some that are taken out wherever they stand. There may be many.
        """
        self._known: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        self._secrets = _any_of(secrets)
        self._places = {path: places[path] for path in sorted(places, key=len, reverse=True)}
        self._hosts = {host.lower() for host in hosts}
        self._names = dict(names)

    def text(self, text: str) -> str:
        """The text without any of it, and without what moves a terminal's cursor."""
        text = plain(_TERMINAL.sub("", text))
        if self._secrets is not None:
            text = self._secrets.sub(SECRET, text)
        for pattern, instead in _LIKE_SECRETS:
            text = pattern.sub(instead, text)
        for path, name in self._places.items():
            text = text.replace(path, name)
        text = _FILE_URL.sub(f"file:{PATH}", text)
        text = _ANY_PATH.sub(_path, text)
        text = _NAMED.sub(lambda found: f"/{found[1]}/{self._host(found[2])}", text)
        text = _URL_HOST.sub(lambda found: found[1] + self._host(found[2]), text)
        text = _IP4.sub(self._ip, text)
        text = _IP6.sub(self._ip, text)
        return _DOTTED.sub(self._named, text)

    def value(self, value: Any) -> Any:
        """What JSON holds, redacted throughout. Raises RecursionError for what is too deep."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {
                    self.text(str(key)): self._called_so(str(key), item)
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self.value(item) for item in value]
            case _:
                return value

    def _called_so(self, key: str, value: Any) -> Any:
        """A value by what its key says that it is, too."""
        if value is not None and _SECRET_KEY.search(key):
            return SECRET
        if isinstance(value, str) and _HOST_KEY.search(key) and not _numbers(value):
            return self._host(value)
        if isinstance(value, list | tuple) and _HOST_KEY.search(key):
            return [self._called_so(key, item) for item in value]
        return self.value(value)

    def _host(self, name: str) -> str:
        if name.lower() == "localhost" or name.startswith("<"):
            return name
        return self._called("host", name.lower())

    def _ip(self, found: re.Match[str]) -> str:
        """A colon before or behind it may be of the sentence that it stands in."""
        text = found[0]
        for start, end in ((0, 0), (0, 1), (1, 0), (1, 1)):
            number = text[start : len(text) - end]
            try:
                address = ipaddress.ip_address(number)
            except ValueError:
                continue  # a time of day, or a version
            if not address.is_global:
                return text
            return text[:start] + self._called("ip", str(address)) + text[len(text) - end :]
        return text

    def _named(self, found: re.Match[str]) -> str:
        """A word with its dots, without the names in it."""
        labels = found[0].split(".")
        told, at = [], 0
        while at < len(labels):
            for end in range(min(len(labels), at + LABELS_MAX), at, -1):
                name = ".".join(labels[at:end]).lower()
                if name in self._names or name in self._hosts:
                    told.append(self._names.get(name) or self._host(name))
                    at = end
                    break
            else:
                told.append(labels[at])
                at += 1
        return ".".join(told)

    def _called(self, kind: str, name: str) -> str:
        if (kind, name) not in self._known:
            self._counts[kind] += 1
            self._known[kind, name] = f"<{kind}-{self._counts[kind]}>"
        return self._known[kind, name]


def redactor_of(
    directory: DataDirectory,
    config: NodeConfig | None,
    made: Genesis | None = None,
    texts: Iterable[str] = (),
) -> Redactor:
    """For a node's directory on this host.

    `texts`: what it will be given. A host that stands in one of them as part of an address is known
    in all of them.
    """
    root = directory.root
    places = {str(root.resolve()): "<dir>", str(root.absolute()): "<dir>"}
    with suppress(RuntimeError):  # who has no home
        places.setdefault(str(Path.home()), "<home>")
    keys = []
    if config is not None:
        for path in _paths_in(config.model_dump()):
            places.setdefault(str(path), PATH)
        named = [value for path, value in node_config.values(config) if path[-1].endswith("key")]
        keys = [root / value for value in named if isinstance(value, str)]
    told = {path: name for path, name in places.items() if len(path) >= PATH_CHARACTERS_MIN}
    hosts = {*_hosts_in(config, made), *(host for text in texts for host in _hosts_told(text))}
    return Redactor(secrets_of(directory, keys), told, _names_of(root), hosts)


def secrets_of(directory: DataDirectory, others: Iterable[Path] = ()) -> set[str]:
    """What of this directory nobody may see, as it is written there and in base64."""
    root = directory.root
    files = [root / READ_NAME, root / ADMIN_NAME, *root.glob("*.token*"), *others]
    for keys in root.glob("keys*"):
        files += keys.glob("*")
    found: set[str] = set()
    for path in files:
        try:
            with path.open("rb") as file:
                text = file.read(SECRET_FILE_BYTES_MAX).decode("ascii", "replace")
        except OSError:
            continue  # what we cannot read stands in nothing that we write
        found.update(SECRET_WORD.findall(text))
    return found | {each for word in found if _is_hex(word) for each in _in_base64(word)}


def _is_hex(word: str) -> bool:
    return len(word) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]+", word) is not None


def _in_base64(word: str) -> set[str]:
    secret = bytes.fromhex(word)
    both = (base64.b64encode(secret), base64.urlsafe_b64encode(secret))
    return {encoded.decode().rstrip("=") for encoded in both}


def _paths_in(value: object) -> Iterable[Path]:
    """Of settings: each Path, and each text that is an absolute one."""
    match value:
        case Path():
            yield value
        case str() if value.startswith(("/", "~/")) and not _MULTIADDR.match(value):
            yield Path(value)
        case dict():
            for item in value.values():
                yield from _paths_in(item)
        case list() | tuple():
            for item in value:
                yield from _paths_in(item)
        case _:
            pass


def _hosts_in(config: NodeConfig | None, made: Genesis | None) -> list[str]:
    """Names of hosts that settings and genesis hold; in texts they may stand without a kind."""
    addresses: list[str] = [] if made is None else list(made.bootstrap())
    hosts: list[str] = []
    if config is not None:
        network = config.network
        addresses += [*network.listen, *network.announce, *network.bootstrap, *config.gateway.dial]
        hosts += [*config.gateway.hosts, *(host.partition(":")[0] for host in config.api.hosts)]
    hosts += [found[2] for address in addresses for found in _NAMED.finditer(address)]
    return [host for host in hosts if len(host) >= NAME_CHARACTERS_MIN and not _numbers(host)]


def _hosts_told(text: str) -> Iterator[str]:
    """Names of hosts in addresses and in fields of that name; one without a dot may be any word."""
    for pattern in (_NAMED, _URL_HOST, _HOST_FIELD):
        for found in pattern.finditer(text):
            if "." in found[2] and not _numbers(found[2]):
                yield found[2].strip(".")


def _numbers(host: str) -> bool:
    """Whether it is an address by number, with or without a port."""
    return re.fullmatch(r"[0-9.]+(:[0-9]+)?|\[.*|[0-9a-fA-F:]*:[0-9a-fA-F:.]*", host) is not None


def _path(found: re.Match[str]) -> str:
    path = found[0]
    is_short = path.count("/") < 2 and not path.startswith("~")
    if _MULTIADDR.match(path) or path.startswith(KEPT) or is_short:
        return path
    _, is_package, below = path.rpartition("/site-packages/")
    return f"<packages>/{below}" if is_package else PATH


def _names_of(root: Path) -> dict[str, str]:
    """Of whole words that name this host, its user, or who owns `root`: what stands for each."""
    asked: tuple[tuple[Callable[[], str], str], ...] = (
        (socket.gethostname, "<host>"),
        (lambda: socket.gethostname().partition(".")[0], "<host>"),
        (getpass.getuser, "<user>"),
        (lambda: pwd.getpwuid(root.stat().st_uid).pw_name, "<user>"),
    )
    found = {}
    for ask, instead in asked:
        with suppress(OSError, KeyError, ImportError):  # a user that nobody has named
            name = ask().lower()
            if len(name) >= NAME_CHARACTERS_MIN and name not in COMMON_NAMES:
                found[name] = instead
    return found


def _any_of(words: Iterable[str]) -> re.Pattern[str] | None:
    """Matches each of them, longer ones first; None for none."""
    each = sorted(filter(None, words), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, each)), re.IGNORECASE) if each else None
