"""Redaction: secrets go, everything else stays, twice is as once."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import NewEvent, RunOutput, encode_payload
from core.redact import mark, redact, redact_json, redact_payload

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


def some(alphabet: str, least: int, most: int | None = None) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most or least)


SECRETS = st.one_of(
    some(ALNUM + "_-", 20, 90).map(lambda s: f"sk-ant-api03-{s}"),
    some(ALNUM, 48).map(lambda s: f"sk-{s}"),
    some(ALNUM + "_-", 40, 120).map(lambda s: f"sk-proj-{s}"),
    some(string.ascii_uppercase + string.digits, 16).map(lambda s: f"AKIA{s}"),
    some(string.ascii_uppercase + string.digits, 16).map(lambda s: f"ASIA{s}"),
    some(ALNUM + "_-", 35).map(lambda s: f"AIza{s}"),
    some(ALNUM + "_-", 40, 80).map(lambda s: f"ya29.{s}"),
    some(ALNUM, 36).map(lambda s: f"ghp_{s}"),
    some(ALNUM, 36).map(lambda s: f"ghs_{s}"),
    some(ALNUM + "_", 60).map(lambda s: f"github_pat_{s}"),
    some(ALNUM, 34).map(lambda s: f"hf_{s}"),
    some(HEX, 40).map(lambda s: f"local-{s}"),
)
# What may stand around a secret in a log: not a letter or digit that would make it another word.
EDGE = st.sampled_from(["", " ", "\n", '"', "'", "(", "=", ": ", "\t", "/", "\u00e9 ", "\u0130 "])
AFTER = st.sampled_from(["", " ", "\n", '"', "'", ")", ",", "\t", ";", " \u00e9"])


@given(SECRETS, EDGE, AFTER, st.text(max_size=30), st.text(max_size=30))
def test_a_known_key_never_survives(
    secret: str, edge: str, after: str, before: str, behind: str
) -> None:
    text = f"{before} {edge}{secret}{after or ' '}{behind}"
    clean = redact(text)
    assert secret not in clean
    assert "[redacted: " in clean


@given(SECRETS, EDGE, AFTER)
def test_text_around_a_key_stays(secret: str, edge: str, after: str) -> None:
    clean = redact(f"step 12 {edge}{secret}{after} loss 0.5")
    assert clean.startswith(f"step 12 {edge}[redacted: ")
    assert clean.endswith(f"]{after} loss 0.5")


@given(st.text() | st.lists(SECRETS | st.text(max_size=12)).map(" ".join))
def test_twice_is_as_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


WORDS = st.sampled_from(
    "step loss token tokens max_tokens tokenizer secret password key api commit tree author sk-1 "
    "AKIA asia hf_hub ghp eyJ authorization wandb local- https://x.org/a?b=c git@host:a/b "
    "0.412 1.9it/s train.py:40 /usr/lib/python3 xla:0 aten::nonzero 100% [INFO] loss=0.25 lr=1e-4"
    " num_tokens=4096 pad_token_id=0 token_type_ids".split()
)


@given(st.lists(WORDS | some(HEX, 40) | some(HEX, 64) | some(HEX, 7), max_size=14).map(" ".join))
def test_ordinary_log_text_stays_the_very_same(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "commit 9fceb02d0ae598e95dc970b74767f19372d6af8f",
        "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904 parent 0123456",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "session melora-1130-a7f3 run r-7 event 8d040c11b52f4e0a9dcc34c27488d07d",
        'token = os.environ["HF_TOKEN"]',
        "+    parser.add_argument('--token', default=None)",
        "login(token=args.token, password=password)",
        "api_key: str | None = None",
        "tokens: 1234, tokens/s: 5.5, token_count=99999999, eos_token=</s>, PAD_TOKEN=[PAD]",
        'if "-----BEGIN PRIVATE KEY-----" in text: refuse()',
        "pip install torch_xla[tpu] -f https://storage.googleapis.com/libtpu-releases/index.html",
        "http://localhost:8431/metrics and user@host:/path and https://host:8443/a@b",
        "PASSWORD=$PASSWORD TOKEN=${TOKEN} SECRET={secret}",
        "<div class='sk-estimator-doc-link-fitted-and-long-class-name-1'>",
        "the password is wrong; a secret: none; this token is unexpected",
        "torch.nn.MultiheadAttention(key_padding_mask=mask, access_key_dim=12)",
        "Graph Hash: 3db474e3914336265462df5faf427395",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("PASSWORD=hunter2", "PASSWORD=[redacted: secret]"),
        ("export MY_API_KEY='abc def'", "export MY_API_KEY='[redacted: secret] def'"),
        ("DB_PASSWD=12345678 X=1", "DB_PASSWD=[redacted: secret] X=1"),
        (f"WANDB_API_KEY={'0a' * 20}", "WANDB_API_KEY=[redacted: secret]"),
        (f"wandb login --relogin {'0a' * 20}", "wandb login --relogin [redacted: W&B key]"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [redacted: secret]",
        ),
        ('{"accessToken": "abcdef"}', '{"accessToken": "[redacted: secret]"}'),
        ("prog --token abc12345 --steps 5", "prog --token [redacted: secret] --steps 5"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted: authorization]"),
        (
            "Proxy-Authorization: Basic dXNlcjpwdw==",
            "Proxy-Authorization: Basic [redacted: authorization]",
        ),
        (
            '"headers": {"x-api-key": "0123456789"}',
            '"headers": {"x-api-key": "[redacted: authorization]"}',
        ),
        (
            "git clone https://me:s3cr3t@example.org/r.git",
            "git clone https://me:[redacted: password]@example.org/r.git",
        ),
        (
            "postgresql://user:p%40ss@db:5432/x",
            "postgresql://user:[redacted: password]@db:5432/x",
        ),
    ],
)
def test_named_secrets_go_and_their_names_stay(text: str, clean: str) -> None:
    assert redact(text) == clean


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("eol", ["\n", "\r\n", "\\n"])
def test_a_private_key_goes_as_a_whole(kind: str, eol: str) -> None:
    lines = [f"-----BEGIN {kind}PRIVATE KEY-----", PEM_BODY, PEM_BODY, "q1w2"]
    key = eol.join([*lines, f"-----END {kind}PRIVATE KEY-----"])
    assert redact(f"before {key} after") == f"before {mark('private key')} after"


def test_a_private_key_cut_in_two_goes_in_both_halves() -> None:
    head = ["cat key", "-----BEGIN RSA PRIVATE KEY-----", PEM_BODY, PEM_BODY]
    tail = [PEM_BODY, PEM_BODY, "-----END RSA PRIVATE KEY-----", "done"]
    for lines in (head, tail):
        clean = redact_json(lines)
        assert PEM_BODY not in "".join(clean)
        assert mark("private key") in clean
    assert redact_json(head)[0] == "cat key"
    assert redact_json(tail)[-1] == "done"


def test_a_private_key_in_a_diff_goes() -> None:
    diff = f"+-----BEGIN PRIVATE KEY-----\n+{PEM_BODY}\n+-----END PRIVATE KEY-----\n+x = 1"
    assert redact(diff) == f"+{mark('private key')}\n+x = 1"


def test_values_behind_telling_names_go_from_json() -> None:
    value = {"env": {"HF_TOKEN": "abc", "PATH": "/bin", "MAX_TOKEN": 5}, "n": [1, None, "x"]}
    assert redact_json(value) == {
        "env": {"HF_TOKEN": mark("secret"), "PATH": "/bin", "MAX_TOKEN": 5},
        "n": [1, None, "x"],
    }


@given(SECRETS, st.text(max_size=10))
def test_a_stored_payload_holds_no_secret(secret: str, around: str) -> None:
    new = NewEvent(RunOutput("stdout", [f"{around}\n{secret}", "\t" + secret, around]), "recorder")
    text = redact_payload(encode_payload(new.body))
    assert secret not in text
    assert len(json.loads(text)["lines"]) == 3


def test_a_payload_without_secrets_is_the_very_same_object() -> None:
    text = encode_payload(RunOutput("stdout", ["step 1 loss 0.5"] * 100))
    assert redact_payload(text) is text


def test_hostile_text_takes_no_quadratic_time() -> None:
    """Each of these took minutes with patterns that may start anywhere; the limit is pytest's."""
    for unit in (
        "token",
        "-----BEGIN PRIVATE KEY-----",
        "://a:",
        "secret_",
        "eyJa.",
        "A" * 64 + "\n",
    ):
        redact(unit * (400_000 // len(unit)))
