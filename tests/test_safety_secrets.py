"""Secrets never get into a bar, and what only looks like one does."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statusbar.escape import block, flatten
from harness.statusbar.redact import REDACTED, RULES, redact

# Put together here, so that no scanner takes this file for a leak.
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6iJ9l"
SECRETS = {
    "private key": "-----BEGIN RSA "
    + "PRIVATE KEY-----\nMIIEow\n"
    + LETTERS
    + "\n-----END RSA PRIVATE KEY-----",
    "private key, cut off": "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n" + LETTERS,
    "AWS key id": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub": "ghp_" + LETTERS[:36],
    "GitHub, fine-grained": "github_pat_" + LETTERS[:22] + "_" + LETTERS,
    "GitLab": "glpat-" + LETTERS[:20],
    "Slack": "xoxb-" + "123456789012-" + LETTERS[:24],
    "Stripe": "sk_" + "live_" + LETTERS[:24],
    "Stripe webhook": "whsec_" + LETTERS[:32],
    "Anthropic": "sk-" + "ant-api03-" + LETTERS * 2,
    "OpenAI": "sk-" + "proj-" + LETTERS,
    "OpenAI, old": "sk-" + LETTERS + LETTERS[:8],
    "OpenRouter": "sk-" + "or-v1-" + "0123456789abcdef" * 4,
    "Google": "AIza" + LETTERS[:35],
    "Google OAuth": "ya29." + LETTERS,
    "Hugging Face": "hf_" + LETTERS[:34],
    "npm": "npm_" + LETTERS[:36],
    "PyPI": "pypi-" + "AgEIcHlwaS5vcmc" + LETTERS,
    "Groq": "gsk_" + LETTERS,
    "SendGrid": "SG." + LETTERS[:22] + "." + LETTERS,
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + LETTERS[:32],
}
NAMED = [
    ("password=hunter2", "hunter2", f"password={REDACTED}"),
    ("password: hunter2 for now", "hunter2", f"password: {REDACTED} for now"),
    ("Password: swordfish", "swordfish", f"Password: {REDACTED}"),
    ('{"password": "correct horse", "n": 1}', "correct horse", f'{{"password": "{REDACTED}", "n": 1}}'),
    ('{\\"api_key\\": \\"k-12345678\\"}', "k-12345678", None),
    ("DB_PASSWORD='p@ss w0rd' run", "w0rd", f"DB_PASSWORD='{REDACTED}' run"),
    ("spring.dbPassword=hunter2", "hunter2", f"spring.dbPassword={REDACTED}"),
    ("client_secret: Xy12Zz34", "Xy12Zz34", f"client_secret: {REDACTED}"),
    ("export MY_API_KEY=abcd1234efgh", "abcd1234efgh", f"export MY_API_KEY={REDACTED}"),
    ("https://x.y/z?access_token=abcd12&page=2", "abcd12", f"https://x.y/z?access_token={REDACTED}&page=2"),
    ("Authorization: Bearer abc.def-123456", "abc.def-123456", f"Authorization: Bearer {REDACTED}"),
    ('-H "Authorization: Basic dXNlcjpwYXNz2w=="', "dXNlcjpwYXNz2w", f'-H "Authorization: Basic {REDACTED}"'),
    ("sent with bearer 0123456789abcdef0123", "0123456789abcdef", f"sent with bearer {REDACTED}"),
    ("postgres://app:s3cr3t@db:5432/x", "s3cr3t", f"postgres://app:{REDACTED}@db:5432/x"),
    ("见https://app:s3cr3t@h/", "s3cr3t", f"见https://app:{REDACTED}@h/"),
    ("mysql --password tr0ub4dor", "tr0ub4dor", f"mysql --password {REDACTED}"),
    ("Set-Cookie: sid=abc123; Path=/", "abc123", f"Set-Cookie: {REDACTED}"),
    ("aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY", "wJalrXUtn", None),
]
LOOK_ALIKES = [
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "550e8400-e29b-41d4-a716-446655440000",
    "/home/user/.ssh/id_rsa.pub",
    "src/password_reset/token_views.py",
    "git@github.com:org/repo.git",
    "https://registry.npmjs.org/@scope/pkg/-/pkg-1.2.3.tgz",
    "http://localhost:8080/@scope/pkg",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA",
    "max_new_tokens=512",
    "token_ids=[1, 2]",
    "eos_token=<|im_end|>",
    "next_page_token=CAUQAA1234567",
    "tokenizer=Qwen2Tokenizer2024",
    "token=12",
    "key: merchant",
    "primary_key=user_id",
    "sort_key=created_at",
    "password: required",
    "password: it must be long",
    "The password reset link was sent.",
    "api_key=os.environ['API_KEY']",
    "api_key = settings.API_KEY",
    "PASSWORD=$DB_PASSWORD",
    "password=${PW}",
    "password = getpass()",
    "password=None",
    "secretary: Ms Jones 2024",
    "Bearer of bad news, 12 of them",
    "bearer authentication",
    "Cookie: chocolate",
    "a risk-free sk-learn pipeline",
    "hf_hub_download",
    "sk-some-very-long-kebab-case-name-of-a-thing",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "booking HATHAT with certificate_7504069 and gift_card_5094406",
    "reservation ABCDEFGHIJKLMNOPQRST",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_known_kind_of_secret_is_redacted_wherever_it_stands(name: str) -> None:
    secret = SECRETS[name]
    for text in (secret, f"call it with {secret}", f'["{secret}"]', f"x={secret}"):
        assert secret[12:28] not in redact(text)
        assert REDACTED in redact(text)
    assert redact(f"before {secret} after").startswith("before ")


@pytest.mark.parametrize(("text", "secret", "expected"), NAMED, ids=[text[:24] for text, _, _ in NAMED])
def test_a_value_under_a_secrets_name_is_redacted_and_the_name_stays(
    text: str, secret: str, expected: str | None
) -> None:
    assert secret in text and secret not in redact(text)
    assert expected is None or redact(text) == expected


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert redact(f"It says {text} and more") == f"It says {text} and more"


def test_every_rule_says_where_its_form_is_stated_and_each_of_its_hints_is_lower_case() -> None:
    for rule in RULES:
        assert rule.source and rule.hints
        assert all(hint == hint.lower() for hint in rule.hints)


@given(
    st.lists(st.sampled_from([*SECRETS.values(), *(n[0] for n in NAMED), *LOOK_ALIKES, " ", '"', "x", "="]))
)
def test_redacting_twice_changes_nothing_more(parts: list[str]) -> None:
    once = redact(" ".join(parts))
    assert redact(once) == once


@given(st.text(max_size=300), st.sampled_from(sorted(SECRETS)), st.integers(1, 200))
def test_no_cut_leaves_half_a_secret(before: str, name: str, limit: int) -> None:
    secret = SECRETS[name]
    text = f"{before} {secret} and so on"
    assert secret[12:24] not in flatten(text, limit)
    assert all(secret[12:24] not in line for line in block(text, limit))


def test_a_secret_behind_many_others_in_a_long_text_is_not_left_half() -> None:
    secret = SECRETS["GitHub"]
    for shift in range(0, 60, 3):
        text = "x" * shift + f" {secret}" * 1000
        assert secret[4:12] not in flatten(text, 4000)


def test_unseen_characters_do_not_hide_a_secret() -> None:
    secret = SECRETS["GitHub"]
    assert flatten("\u200b".join(secret), 200) == REDACTED


def test_hostile_texts_of_a_million_characters_take_no_longer_than_seconds() -> None:
    pieces = [
        "a",
        "password=",
        "sk-",
        "eyJ",
        "-----BEGIN PRIVATE KEY-----",
        "a.b-c_",
        "://",
        "bearer ",
        "aws=",
        'token="',
    ]
    for piece in pieces:
        text = piece * (1_000_000 // len(piece))
        begun = time.perf_counter()
        redact(text)
        assert time.perf_counter() - begun < 8, f"{piece!r} is not linear"
