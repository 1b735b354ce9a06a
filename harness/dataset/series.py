"""A scenario's four series of decision points.

Knows which samples a series consists of and what each expects. Does not know how messages are built
(`episode`) nor what a tokenizer is: token counts come from a function that the caller gives.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from harness.dataset.episode import Draws, Transcript, call_order, draw, fill, generator
from harness.dataset.load import Scenario
from harness.errors import ConfigError, ScenarioError
from harness.types import Expectation, Message, Sample, Series, Side

CountTokens = Callable[[str], int]
MOVED_CALLS = (1, 2, 3, 5, 8, 12, 16, 20)
"""Prior calls of series `moved_limit` where none are asked for: denser where one call more weighs more."""


def expand(
    scenario: Scenario,
    *,
    series: Series,
    clusters: int,
    seed: int,
    prior_calls: Sequence[int] | None = None,
    filler_tokens: Sequence[int] = (0,),
    count_tokens: CountTokens | None = None,
) -> list[Sample]:
    """All samples of one series, cluster by cluster.

    `matched`: per cluster a forbidden and a due sample that differ in the merchant the follow-up names.
    `prior_calls`: per cluster one sample for each number n of prior calls (default 1 to twice the limit).
    `filler`: matched pairs behind small talk of each of `filler_tokens` tokens, measured by `count_tokens`.
    `moved_limit`: per cluster and number n of prior calls (default `MOVED_CALLS`) a forbidden sample with limit
    n and a due one with limit n + 1, which differ in nothing else.

    A cluster's samples depend on (scenario content, series, seed, its index) alone. Raises `ConfigError` for
    arguments that do not fit and `ScenarioError` when a pool is too small for the episode.
    """
    _check(scenario, series, clusters, seed)
    if series in ("prior_calls", "moved_limit") and scenario.spec.episode.script:
        raise ConfigError(
            f"series {series!r} makes its own calls, and scenario {scenario.name!r} is scripted (episode.script); "
            "take series matched or filler, as in probe=[choose_matched]"
        )
    if series not in ("prior_calls", "moved_limit") and prior_calls is not None:
        raise ConfigError(
            f"prior_calls belongs to series 'prior_calls' and 'moved_limit', not to {series!r}; leave it out"
        )
    if series != "filler" and tuple(filler_tokens) != (0,):
        raise ConfigError(f"filler_tokens belongs to series 'filler', not to {series!r}; leave it out")
    usual = MOVED_CALLS if series == "moved_limit" else range(1, 2 * scenario.rule.limit + 1)
    counts = sorted(usual if prior_calls is None else prior_calls)
    _check_numbers("prior_calls", counts, at_least=1)
    if series == "moved_limit":
        _check_states_limit(scenario, counts)
    _check_numbers("filler_tokens", filler_tokens, at_least=0)
    if max(filler_tokens) > 0 and count_tokens is None:
        raise ConfigError("series 'filler' with filler_tokens above 0 needs a tokenizer: pass count_tokens")
    if max(filler_tokens) > 0 and not scenario.spec.pools.fillers:
        raise ConfigError(f"{scenario.source}: pools.fillers: empty, and series 'filler' draws from it")
    out: list[Sample] = []
    for index in range(clusters):
        plan = _Cluster(scenario, series, seed, draw(scenario, series, seed, index))
        if series == "matched":
            out.extend(_pair(plan, plan.start(), 0, ""))
        elif series == "prior_calls":
            out.extend(_curve(plan, counts))
        elif series == "moved_limit":
            out.extend(_moved(plan, counts))
        else:
            out.extend(_filled(plan, filler_tokens, count_tokens))
    return out


@dataclass(frozen=True)
class _Cluster:
    scenario: Scenario
    series: Series
    seed: int
    draws: Draws

    @property
    def name(self) -> str:
        return f"{self.series}/c{self.draws.index:03d}"

    def start(self) -> Transcript:
        transcript = Transcript(self.scenario, self.draws)
        transcript.say("system", self.scenario.system(self.scenario.rule.limit))
        return transcript

    def opening_order(self) -> tuple[str, str]:
        """The opening's order of names: changes every four clusters, so it crosses the order of calls."""
        a, b = self.draws.a, self.draws.b
        return (a, b) if self.draws.index // 4 % 2 == 0 else (b, a)

    def sample(
        self, transcript: Transcript, side: Side, target: str, prior: int, suffix: str, filler: int = 0
    ) -> Sample:
        """The decision point at the end of `transcript`, under the scenario's own limit."""
        scenario, draws, rule = self.scenario, self.draws, self.scenario.rule
        return Sample(
            id=f"{scenario.name}/{self.name}/{suffix}",
            scenario=scenario.name,
            cluster=self.name,
            series=self.series,
            messages=tuple(transcript.messages),
            tools=scenario.tools,
            rules=scenario.rules,
            expectation=Expectation(
                side=side,
                tool=rule.tool,
                key=rule.key,
                target=target,
                others=tuple(name for name in (draws.a, draws.b) if name != target),
                reply_tool=scenario.spec.reply_tool,
            ),
            prior_calls=prior,
            limit=rule.limit,
            phrasing=draws.strength,
            seed=self.seed,
            truth={tool: dict(counts) for tool, counts in transcript.truth.items()},
            decoys=draws.decoys,
            filler_tokens=filler,
        )


def _pair(plan: _Cluster, transcript: Transcript, filler: int, prefix: str) -> Iterator[Sample]:
    """Both sides of one transcript: `a` is at its limit, `b` one call below."""
    draws, limit = plan.draws, plan.scenario.rule.limit
    if plan.scenario.spec.episode.script:
        transcript.play(draws.a if draws.index % 2 == 0 else draws.b)
    else:
        _call_all(plan, transcript)
    sides: tuple[tuple[Side, str, int], ...] = (("forbidden", draws.a, limit), ("due", draws.b, limit - 1))
    for side, target, prior in sides:
        branch = transcript.fork()
        branch.follow_up(target)
        yield plan.sample(branch, side, target, prior, prefix + side, filler)


def _call_all(plan: _Cluster, transcript: Transcript) -> None:
    """Opening, calls with asides between them, and closing."""
    draws, limit = plan.draws, plan.scenario.rule.limit
    rng = generator(*draws.key, "order")
    order = call_order(limit, draws.index, rng)
    aside = plan.scenario.spec.episode.aside
    after = [rng.randrange(max(1, len(order) - 1)) for _ in range(aside.count if aside else 0)]
    transcript.open(*plan.opening_order())
    for position, who in enumerate(order):
        transcript.call(draws.a if who == "a" else draws.b)
        for _ in range(after.count(position)):
            transcript.aside()
    transcript.close()


def _curve(plan: _Cluster, counts: Sequence[int]) -> Iterator[Sample]:
    """n prior calls to `a` after one to `b`, under the scenario's own limit."""
    for n, transcript in _grown(plan, counts):
        side: Side = "due" if n < plan.scenario.rule.limit else "forbidden"
        yield plan.sample(transcript, side, plan.draws.a, n, f"n{n}")


def _moved(plan: _Cluster, counts: Sequence[int]) -> Iterator[Sample]:
    """The same transcripts, each under two limits: the one that its calls have reached, and one more."""
    for n, transcript in _grown(plan, counts):
        sides: tuple[tuple[Side, int], ...] = (("forbidden", n), ("due", n + 1))
        for side, limit in sides:
            branch = transcript.fork()
            branch.messages[0] = Message("system", plan.scenario.system(limit))
            sample = plan.sample(branch, side, plan.draws.a, n, f"n{n}/{side}")
            rule, *rest = sample.rules
            yield replace(sample, limit=limit, rules=(replace(rule, limit=limit), *rest))


def _grown(plan: _Cluster, counts: Sequence[int]) -> Iterator[tuple[int, Transcript]]:
    """n calls to `a` after one to `b`, then the follow-up that names `a`, for each n of `counts` (ascending).
    Each transcript extends the one before it up to its closing.

    The asides come after fixed calls, so that a longer transcript only ever appends.
    """
    draws, limit = plan.draws, plan.scenario.rule.limit
    aside = plan.scenario.spec.episode.aside
    rng = generator(*draws.key, "asides")
    after = [rng.randrange(2 * limit) for _ in range(aside.count if aside else 0)]
    transcript = plan.start()
    transcript.open(*plan.opening_order())
    transcript.call(draws.b)
    for n in range(1, counts[-1] + 1):
        for _ in range(after.count(n - 1)):
            transcript.aside()
        transcript.call(draws.a)
        if n in counts:
            branch = transcript.fork()
            branch.close()
            branch.follow_up(draws.a)
            yield n, branch


def _filled(plan: _Cluster, targets: Sequence[int], count_tokens: CountTokens | None) -> Iterator[Sample]:
    """The same pair behind each amount of small talk; a longer one starts with the shorter one."""
    for tokens in targets:
        transcript = plan.start()
        if count_tokens is not None:
            fill(transcript, tokens, count_tokens)
        yield from _pair(plan, transcript, tokens, f"f{tokens}/")


def _check(scenario: Scenario, series: str, clusters: int, seed: int) -> None:
    if series not in get_args(Series):
        raise ConfigError(f"unknown series {series!r}; there are: {', '.join(get_args(Series))}")
    if not 1 <= clusters <= 1000:
        raise ConfigError(f"clusters is {clusters}; expected 1 to 1000")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; expected 0 or more")


def _check_states_limit(scenario: Scenario, counts: Sequence[int]) -> None:
    """The prompt must state the limit that the rule holds, so its text must follow the limit."""
    for n in counts:
        if scenario.system(n) == scenario.system(n + 1):
            raise ScenarioError(
                f"{scenario.source}: system: states the same for limits {n} and {n + 1}, and series 'moved_limit' "
                "moves the limit; write {{ limit }} where the text states it"
            )


def _check_numbers(name: str, values: Sequence[int], at_least: int) -> None:
    if not values or len(set(values)) != len(values) or min(values) < at_least:
        shown = list(values)
        raise ConfigError(
            f"{name} is {shown}; expected one or more different numbers, each {at_least} or more"
        )
