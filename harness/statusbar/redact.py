"""Secrets in a text → `[redacted]`, by what well-known secrets look like and by the name that they are assigned to.

Knows texts alone. It is called for every piece of content that a bar shows, so a rule's pattern is run only where one of
its hints occurs. It leaves alone what merely looks long (hashes, UUIDs, paths, code that reads a secret from elsewhere):
a bar that hides a commit's id states another state.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

REDACTED = "[redacted]"
_TOKEN = r"(?<![A-Za-z0-9_])"
"""Where a token may begin: not inside a word."""
_END = r"(?![A-Za-z0-9])"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret. `hints`: lower case; without one of them in the lower-case text the pattern cannot match."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    source: str
    """Where its form is stated."""
    replacement: str | Callable[[re.Match[str]], str] = REDACTED


def _rule(name: str, hints: str, pattern: str, source: str, replacement: str = REDACTED) -> Rule:
    return Rule(name, tuple(hints.split()), re.compile(pattern), source, replacement)


_NAMES = (
    r"pass(?:word|wd|phrase)|pwd|secret|credentials?|(?:api|access|auth|private|account|secret|signing|encryption)[_.-]?key"
    r"|client[_.-]?secret|(?:api|auth|access|refresh|session|bearer|id)[_.-]?token"
)
_WORDS = (
    "none null nil true false yes no required optional missing unknown empty unset string text str int bool value hidden"
    " redacted masked secret password passwd token changed expired invalid incorrect correct wrong ok set needed env"
    " default here below above"
)
_HARMLESS = frozenset(_WORDS.split())
_WHOLE_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""`settings.API_KEY`, `self.token`: says where a secret is, not what it is."""
_PAGING = re.compile(
    r"(?i)(?:page|next|continuation|sync|cursor|[bpeu]os|pad|unk|csv|mask|stop|special)[_.-]?token$"
)


def _assigned(found: re.Match[str]) -> str:
    """`name = value` without the value, unless the value is none."""
    value = found["value"]
    mark = next((mark for mark in ('\\"', '"', "'", "`") if value.startswith(mark)), "")
    closing = mark if mark and len(value) > 2 * len(mark) and value.endswith(mark) else ""
    bare = value[len(mark) : len(value) - len(closing)].strip()
    # What a template or a shell fills in, what is masked already, and code that reads it from elsewhere.
    if len(bare) < 4 or bare.lower() in _HARMLESS or bare[0] in "$<{[*%(" or bare.startswith(REDACTED[1:-1]):
        return found[0]
    if not mark and ("(" in bare or "[" in bare or _WHOLE_CODE.fullmatch(bare)):
        return found[0]
    weak = found["name"].lower().endswith("token") and not re.search(rf"(?i)(?:{_NAMES})$", found["name"])
    if weak and (len(bare) < 8 or _plain(bare) or bare.isdigit() or _PAGING.search(found["name"])):
        return found[0]
    if ":" in found["sign"] and not mark and _plain(bare) and found["end"] is None:
        return found[0]  # prose: `password: it must be long`
    return f"{found['head']}{mark}{REDACTED}{closing}"


def _plain(value: str) -> bool:
    """A word as prose has it: letters, hyphens and apostrophes."""
    return not re.search(r"[^A-Za-z'’.!?-]", value)


_ASSIGNMENT = re.compile(
    rf"""
    (?P<head>
      (?P<name>
        (?<![A-Za-z0-9]) (?: [A-Za-z0-9]{{1,40}} [_.-] ){{0,6}} (?: [A-Za-z0-9]{{0,30}}? (?: {_NAMES} ) | token )
      ) (?![A-Za-z0-9_])
      \\?["'`]? (?P<sign> \s{{0,4}} (?: := | => | [=:] ) \s{{0,4}} )
    )
    (?P<value>
      \\"[^"\n]{{1,4000}}"? | "[^"\n]{{1,4000}}"? | '[^'\n]{{1,4000}}'? | `[^`\n]{{1,4000}}`?
      | [^\s"'`&,;<>=][^\s"'`&,;<>]{{0,4000}}
    )
    (?P<end> (?= \s*$ | \s*[\n,;}}] ) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_GITLEAKS = "gitleaks, config/gitleaks.toml"

RULES: tuple[Rule, ...] = (
    _rule(
        "private key",
        "-----begin",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        "RFC 7468; RFC 4880 for PGP's block",
    ),
    _rule(
        "AWS key id",
        "akia asia abia acca",
        _TOKEN + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}" + _END,
        "AWS IAM user guide, unique identifiers",
    ),
    _rule(
        "AWS secret",
        "aws",
        r"(?i)(aws[\w.-]{0,30}[\"']?\s{0,4}[=:]\s{0,4}[\"']?)(?=[A-Za-z0-9/+]{0,39}[/+A-Z0-9])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
        "AWS CLI user guide, configuration files: 40 characters of base64",
        rf"\1{REDACTED}",
    ),
    _rule(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        _TOKEN + r"(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
        "GitHub engineering blog, 2021-04-05, token formats",
    ),
    _rule(
        "GitLab token",
        "glpat- gldt- glrt- glcbt- gloas- glptt- glft- glsoat- glimt- glagent-",
        _TOKEN + r"gl(?:pat|dt|rt|cbt|oas|ptt|ft|soat|imt|agent)-[A-Za-z0-9_.-]{16,300}",
        "GitLab docs, token overview, token prefixes",
    ),
    _rule(
        "Slack token",
        "xox xapp- xwfp-",
        _TOKEN + r"(?:xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,300}|x(?:app|wfp)-[A-Za-z0-9-]{10,300})",
        "Slack docs, token types",
    ),
    _rule(
        "Slack webhook",
        "hooks.slack.com",
        r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]{20,200}",
        "Slack docs, incoming webhooks",
        rf"\1{REDACTED}",
    ),
    _rule(
        "Stripe key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        _TOKEN + r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{24,255})",
        "Stripe docs, API keys",
    ),
    _rule(
        "Anthropic key",
        "sk-ant-",
        _TOKEN + r"sk-ant-[a-z]{2,10}\d{0,2}-[A-Za-z0-9_-]{20,300}",
        _GITLEAKS,
    ),
    _rule(
        "OpenAI key",
        "sk-",
        # `sk-` and a run of letters alone may be a word; a key has digits or capitals.
        _TOKEN + r"sk-(?:proj-|svcacct-|admin-|or-v1-|None-)?(?=[a-z_-]{0,200}[A-Z0-9])[A-Za-z0-9_-]{32,300}",
        _GITLEAKS + "; OpenRouter docs for sk-or-v1",
    ),
    _rule(
        "Google key",
        "aiza ya29. gocspx-",
        _TOKEN + r"(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,2000}|GOCSPX-[A-Za-z0-9_-]{24,60})",
        _GITLEAKS + "; Google Cloud docs, API keys",
    ),
    _rule(
        "Hugging Face token",
        "hf_ api_org_",
        _TOKEN + r"(?:hf_|api_org_)[A-Za-z0-9]{30,60}" + _END,
        _GITLEAKS,
    ),
    _rule(
        "package registry token",
        "npm_ pypi-",
        _TOKEN + r"(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,1000})",
        "npm docs, about access tokens; PyPI help, API tokens",
    ),
    _rule(
        "inference provider's key",
        "gsk_ xai- nvapi- r8_",
        _TOKEN + r"(?:gsk_[A-Za-z0-9]{32,80}|xai-[A-Za-z0-9]{40,120}|nvapi-[A-Za-z0-9_-]{40,120}|r8_[A-Za-z0-9]{32,60})",
        _GITLEAKS + "; the providers' own examples",
    ),
    _rule(
        "SendGrid key",
        "sg.",
        _TOKEN + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}",
        _GITLEAKS,
    ),
    _rule(
        "JSON web token",
        "eyj",
        # Parts two and three may be missing where the text was cut.
        _TOKEN + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}",
        "RFC 7519",
    ),
    _rule(
        "Authorization header",
        "authorization",
        r"(?i)((?<![A-Za-z0-9])authorization\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?:(?:bearer|basic|token|digest|apikey)\s{1,4})?)"
        r"(?!(?:bearer|basic|token|digest|apikey|\[redacted\])(?:\s|$))(?=[A-Za-z._~+/=-]{0,300}[0-9=])[A-Za-z0-9._~+/=:-]{8,4000}",
        "RFC 9110, section 11.6.2; RFC 6750",
        rf"\1{REDACTED}",
    ),
    _rule(
        "bearer token",
        "bearer",
        r"(?i)((?<![A-Za-z0-9])bearer\s{1,4})(?=[A-Za-z._~+/-]{0,300}[0-9])[A-Za-z0-9._~+/-]{16,4000}={0,2}",
        "RFC 6750, section 2.1",
        rf"\1{REDACTED}",
    ),
    _rule(
        "cookie",
        "cookie",
        r"(?i)((?<![A-Za-z0-9])(?:set-)?cookie:\s{0,4})[\w.-]{1,100}=[^\s;]{1,4000}(?:;\s{0,4}[\w.-]{1,100}=[^\s;]{1,4000}){0,50}",
        "RFC 6265",
        rf"\1{REDACTED}",
    ),
    _rule(
        "user and password in an address",
        "://",
        r"(?i)(://[^\s/@:?#]{0,200}:)(?![$<{*])[^\s/@?#]{1,400}(?=@)",
        "RFC 3986, section 3.2.1",
        rf"\1{REDACTED}",
    ),
    Rule(
        "password on a command line",
        ("--pass", "--token", "--api-key", "--apikey", "--secret", "--auth"),
        re.compile(
            r"(?i)(?P<head>(?<![\w-])--(?:pass(?:word|wd|phrase)?|token|api-?key|secret|auth-token)\s{1,4})"
            r"(?P<value>\"[^\"\n]{4,400}\"|'[^'\n]{4,400}'|[^\s\"'`$<{\[|;&-][^\s\"'`|;&]{5,400})"
        ),
        "curl, docker and cloud clients",
        lambda found: found["head"] + (found["value"] if _plain(found["value"]) and len(found["value"]) < 8 else REDACTED),
    ),
    Rule(
        "value assigned to a secret's name",
        ("pass", "pwd", "secret", "credential", "key", "token"),
        _ASSIGNMENT,
        "names as in gitleaks' generic rule and detect-secrets' keyword plugin",
        _assigned,
    ),
)  # fmt: skip


def redact(text: str) -> str:
    """`text` with every secret as `[redacted]`; what names it (`password=`, `Bearer`, a user) stays. Done twice it changes
    nothing more."""
    lower = text.lower()
    for rule in RULES:
        for hint in rule.hints:
            if hint in lower:
                text = rule.pattern.sub(rule.replacement, text)
                break
    return text
