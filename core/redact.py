"""Secrets out of text, before it is stored: ``[redacted: kind]`` takes their place.

Known key formats are found anywhere. Formats that look like something innocent (a W&B key is 40
hex digits, as a git commit is) are only found behind a name that gives them away, such as
``WANDB_API_KEY=``. Names and the text around a secret stay, so that a log can still be read.

Redaction is idempotent: redacting a second time changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_MARK = "[redacted: "


def mark(kind: str) -> str:
    """What is put in the place of a secret of this kind."""
    return f"{_MARK}{kind}]"


class _Rule(NamedTuple):
    """``needles``: lower-case texts at which the pattern may begin; it is tried nowhere else."""

    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]


def _whole(kind: str) -> Callable[[re.Match[str]], str]:
    return lambda _: mark(kind)


def _key(kind: str, needles: tuple[str, ...], pattern: str) -> _Rule:
    return _Rule(needles, re.compile(rf"(?<![A-Za-z0-9]){pattern}"), _whole(kind))


# --- named values: NAME=value, "name": "value", --name value ---------------------------------

_SECRET_WORDS = r"token|secret|passw(?:or)?d|passphrase|credentials?|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
# The word is part of a name: HF_TOKEN, aws_secret_access_key, accessToken; not tokenizer, tokens.
_NAMED = re.compile(
    rf"""
    (?P<name> (?: (?<![A-Za-z0-9]) | (?<=[a-z]) (?=[TSPCAK]) )
       (?i: {_SECRET_WORDS} ) (?: [_-][A-Za-z0-9_-]{{0,40}} )? )
    (?P<sep> (?: \\?["'] )? [ \t]{{0,8}} (?: = | : (?!:) | => ) [ \t]{{0,8}} | [ \t]{{1,8}} )
    (?P<quote> \\?["'] )?
    (?P<value> [^\s"'`,;\\]{{3,4096}} )
    """,
    re.VERBOSE,
)
_NAME_ONLY = re.compile(
    rf"(?:(?<![A-Za-z0-9])|(?<=[a-z])(?=[TSPCAK]))(?i:{_SECRET_WORDS})(?:[_-][A-Za-z0-9_-]{{0,40}})?"
)
_COUNTED = re.compile(
    r"(?i)token[_-](?:count|id|ids|type|types|len|length|limit|budget|usage|size)"
)
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[(\[{]"  # a call or an index: os.environ["HF_TOKEN"]
    r"|[a-z_]\w*(?:\.[A-Za-z_]\w*)+\)*$"  # an attribute: args.token
    r"|[$%<{(\[*]"  # $HOME, %s, <pad>, {token}, ***
)
_NOTHING = frozenset({"none", "null", "true", "false", "str", "string", "optional", "required"})


def _is_secret(name: str, value: str, loud: bool) -> bool:
    """Whether ``value`` behind ``name`` is one to hide.

    ``loud`` is a place where only values stand (an upper-case name and ``=``, a quoted string);
    elsewhere, in prose and code, the value must look like a key as well.
    """
    if value.startswith(_MARK) or _CODE.match(value) or value.lower() in _NOTHING:
        return False
    if _COUNTED.search(name):
        return False
    if "token" in name.lower() and re.fullmatch(r"[\d._]+", value):
        return False  # max_token=4096, tokens per second
    if loud:
        return True
    return len(value) >= 8 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _named(m: re.Match[str]) -> str:
    name, sep, quote, value = m["name"], m["sep"], m["quote"] or "", m["value"]
    explicit = "=" in sep or ":" in sep
    # `--token abc` is a command line; `token abc` is prose.
    if not explicit and not m.string[max(0, m.start() - 24) : m.start("sep")].lstrip().rpartition(
        " "
    )[2].startswith("--"):
        return m[0]
    upper = name == name.upper() and "=" in sep and sep.strip() == sep
    if not _is_secret(name, value, loud=upper or bool(quote) or not explicit):
        return m[0]
    return f"{name}{sep}{quote}{mark('secret')}"


# --- private keys ----------------------------------------------------------------------------

_BEGIN_KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END_KEY = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# A line of a key: base64, perhaps behind a diff's or a quote's mark.
_KEY_LINE = r"[ \t+>|\"'-]{0,8}[A-Za-z0-9+/=]{16,80}[\"',]{0,2}"
_EOL = r"(?:\r?\n|\\r\\n|\\n)"
_PRIVATE_KEY = re.compile(
    rf"{_BEGIN_KEY}(?:(?:[^-]|-(?!----)){{0,20000}}{_END_KEY}|(?:{_EOL}{_KEY_LINE}){{0,400}})"
)
# The tail of a key whose beginning was in the chunk before; begins at the first key line.
_KEY_TAIL = re.compile(rf"(?:{_KEY_LINE}{_EOL}){{1,400}}[ \t+>|-]{{0,8}}{_END_KEY}")
_HAS_BODY = re.compile(r"[A-Za-z0-9+/]{16}")


def _private_key(m: re.Match[str]) -> str:
    body = m[0].split("-----", 2)[2]
    # Code that only names the marker (`if "-----BEGIN PRIVATE KEY-----" in text`) has no key.
    return mark("private key") if _HAS_BODY.search(body) else m[0]


# --- headers and URLs ------------------------------------------------------------------------

_HEADER = re.compile(
    r"""(?ix) (?P<head> (?<![A-Za-z0-9]) (?: authorization | x-api-key | x-goog-api-key
        | x-auth-token | private-token )
      \\?["']? [ \t]{0,4} [:=] [ \t]{0,4} \\?["']? (?: (?:bearer|basic|token|digest|negotiate) [ \t]{1,4} )? )
      (?P<value> [^\s"'`,;\\]{6,8192} )"""
)
_BEARER = re.compile(
    r"(?i)(?P<head>(?<![A-Za-z0-9])bearer[ \t]{1,4})(?P<value>[A-Za-z0-9_.~+/=-]{20,8192})"
)
_URL = re.compile(r"(?P<head>://[^\s/:@\"'<>]{0,256}:)(?P<value>[^\s/@\"'<>]{1,512})@")
_SIGNED = re.compile(
    r"(?i)(?P<head>X-(?:Amz|Goog)-(?:Signature|Security-Token)=)(?P<value>[^\s&\"'\[]{8,8192})"
)


def _value(kind: str, tail: str = "") -> Callable[[re.Match[str]], str]:
    def replace(m: re.Match[str]) -> str:
        value = m["value"]
        if value.startswith(("[redacted", "$", "{", "<", "%", "*")) or _CODE.match(value):
            return m[0]
        return f"{m['head']}{mark(kind)}{tail}"

    return replace


_RULES: tuple[_Rule, ...] = (
    _Rule(("-----begin ",), _PRIVATE_KEY, _private_key),
    _key("Anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _key(
        "OpenAI key",
        ("sk-",),
        r"sk-(?:(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    ),
    _key("AWS key id", ("akia", "asia"), r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _key("Google key", ("aiza",), r"AIza[A-Za-z0-9_-]{35}"),
    _key("Google token", ("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,}"),
    _key("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,}"),
    _key("GitHub token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,}"),
    _key("GitLab token", ("glpat-",), r"glpat-[A-Za-z0-9_-]{20,}"),
    _key("Hugging Face token", ("hf_",), r"hf_[A-Za-z0-9]{30,}"),
    _key("Hugging Face token", ("api_org_",), r"api_org_[A-Za-z0-9]{30,}"),
    _key("W&B key", ("wandb_v1_",), r"wandb_v1_[A-Za-z0-9_]{30,}"),
    _key("W&B key", ("local-",), r"local-[0-9a-f]{40}(?![A-Za-z0-9])"),
    _Rule(
        ("wandb",),
        re.compile(
            r"(?P<head>wandb[ \t]+login(?:[ \t]+--?[a-z-]+){0,4}[ \t]+)"
            r"(?P<value>[0-9a-f]{40})(?![A-Za-z0-9])"
        ),
        _value("W&B key"),
    ),
    _key("Slack token", ("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _key("PyPI token", ("pypi-",), r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _key(
        "JSON web token", ("eyj",), r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    ),
    _Rule(
        ("authorization", "x-api-key", "x-goog-api-key", "x-auth-token", "private-token"),
        _HEADER,
        _value("authorization"),
    ),
    _Rule(("bearer",), _BEARER, _value("authorization")),
    _Rule(("://",), _URL, _value("password", "@")),
    _Rule(("x-amz-", "x-goog-"), _SIGNED, _value("signature")),
    _Rule(
        (
            "token", "secret", "passw", "passphrase", "credential", "api_key", "api-key", "apikey",
            "access_key", "access-key", "accesskey", "private_key", "private-key", "privatekey",
            "auth_key", "auth-key", "authkey",
        ),
        _NAMED,
        _named,
    ),
)  # fmt: skip


def redact(text: str) -> str:
    """``text`` without its secrets; the very same object where there are none.

    Runs on every chunk of every log. A pattern is only tried where one of its needles stands, so
    that a chunk without any costs a few substring searches (BENCHMARKS.md).
    """
    low = _lower(text)
    if "-----end " in low and "private key" in low:
        text = _KEY_TAIL.sub(mark("private key"), text) if "-----begin " not in low else text
        low = _lower(text)
    for needles, pattern, replace in _RULES:
        for needle in needles:
            if needle in low:
                changed = _replace_at(needle, pattern, replace, text, low)
                if changed is not text:
                    text, low = changed, _lower(changed)
    return text


def _replace_at(
    needle: str,
    pattern: re.Pattern[str],
    replace: Callable[[re.Match[str]], str],
    text: str,
    low: str,
) -> str:
    """``text`` with the pattern's matches replaced that begin at ``needle``; ``low`` is its shadow."""
    pieces: list[str] = []
    done = 0
    at = low.find(needle)
    while at >= 0:
        m = pattern.match(text, at)
        new = replace(m) if m else ""
        if m and new != m[0]:
            pieces += (text[done:at], new)
            done = m.end()
        at = low.find(needle, max(done, at + len(needle)))
    return "".join([*pieces, text[done:]]) if pieces else text


def _lower(text: str) -> str:
    """Lower case at the same positions: a dotted capital I alone would become two characters."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()


def redact_json(value: Any) -> Any:
    """A JSON value without its secrets, in its text and behind names such as ``HF_TOKEN``."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(k): _under_name(k, v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, str) for item in value):
            return _redact_lines(list(value))
        return [redact_json(item) for item in value]
    return value


def _under_name(name: str, value: Any) -> Any:
    if isinstance(value, str) and value:
        named = _NAME_ONLY.search(name)
        if named and named.end() == len(name) and _is_secret(named[0], value, loud=True):
            return mark("secret")
    return redact_json(value)


def _redact_lines(lines: list[str]) -> list[str]:
    """Lines of one stream, at once: a private key that spans several of them goes as a whole."""
    text = "\n".join(lines)
    clean = redact(text)
    if clean is text:
        return lines
    if "PRIVATE KEY" in text or text.count("\n") == len(lines) - 1:
        return clean.split("\n")
    return [redact(line) for line in lines]  # some have line breaks of their own: keep the number


_NEEDLES = ("-----end ", *sorted({n for rule in _RULES for n in rule.needles} - {"://"}))


def redact_payload(text: str) -> str:
    """Canonical JSON text without its secrets; the very same object where there are none."""
    low = text.lower()
    for needle in _NEEDLES:
        if needle in low:
            break
    else:
        if "@" not in low:  # a URL with a password has one
            return text
    value = json.loads(text)
    clean = redact_json(value)
    if clean == value:
        return text
    return json.dumps(clean, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
