"""The methods of a run in paragraphs, from its manifest and what its tables hold.

Knows which manifest entries say what, and which statistics the tables use; cites only methods that this run used. What
the manifest does not hold is left out, never guessed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis import statistics as st
from harness.analysis.costs import LATENCIES
from harness.analysis.decisions import MATCHED
from harness.analysis.frames import Arm, placebo_for
from harness.analysis.publication.captions import margin_words
from harness.analysis.publication.facts import (
    Counted,
    Facts,
    counted,
    short_hash,
    text_at,
    value_at,
)
from harness.analysis.publication.prose import name, names
from harness.analysis.ratios import TOKENS
from harness.analysis.table import Table, fixed
from harness.analysis.verdicts import MIN_CLUSTERS

Paragraph = tuple[str, str]
"""Heading and text, with the marks of `prose`."""
ENGINES = {"transformers": " [@wolf2020]", "vllm": " [@kwon2023]"}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
PROBES = {
    "choose": (
        "a tool call is forced and the exact probability of every choice is read off, renormalised over the choices, the "
        "log odds clipped at ± 12"
    ),
    "act": "the model answers freely with the tools at hand",
    "ask": "in place of the follow-up the model is asked how often the tool was used, which has one right answer",
}
SERIES = {
    MATCHED: "matched pairs (one transcript, one target at its limit and one a call below it)",
    "prior_calls": "a curve over the number of prior calls",
    "filler": "a curve over the length of unrelated text before the case",
    "moved_limit": "a curve over prior calls with the limit moved along",
}


def methods(facts: Facts) -> list[Paragraph]:
    """The paragraphs of one run, in reading order."""
    made = [
        ("Material", _material(facts)), ("Conditions", _conditions(facts)), ("Probes", _probes(facts)),
        ("Model", _model(facts)), ("Statistics", _statistics(facts)), ("Attention", _attention(facts)),
        ("Data and code", _code(facts)),
    ]  # fmt: skip
    return [(heading, text) for heading, text in made if text]


def _material(facts: Facts) -> str:
    scenario = text_at(facts.manifest, "config", "scenario", "file")
    digest = short_hash(text_at(facts.manifest, "inputs", "scenario"))
    seed, epochs = text_at(facts.manifest, "config", "seed"), text_at(facts.manifest, "config", "epochs")
    named = name(scenario) if scenario else "of the run"
    hashed = f" (SHA-256 {name(digest)})" if digest else ""
    seeded = f" with seed {seed}" if seed else ""
    text = (
        f"{facts.warning()}Decision points were drawn from the scenario {named}{hashed}{seeded}. A cluster is one "
        "independently drawn episode; nothing but system prompt and tools is shared between clusters."
    )
    if any(part.series == MATCHED for part in counted(facts.tables)):
        text += (
            " Every cluster holds a matched pair on one transcript: a decision point where the rule forbids the call and "
            "one where the call is due."
        )
    return text + (f" Each cell was repeated {epochs} times." if epochs not in ("", "1") else "")


def _conditions(facts: Facts) -> str:
    there = set(facts.run.cells["condition"])
    arms = [arm for arm in facts.run.arms if arm.name in there]
    if not arms:
        return ""
    sizes = _bar_tokens(facts.tables["tokens"])
    told = "; ".join(_arm(arm, arms, sizes.get(arm.name, "")) for arm in arms)
    return (
        f"The same decision points were rendered under {len(arms)} condition{'s' if len(arms) > 1 else ''}: {told}. "
        "Before any model ran, the token ids of every prompt were compared with the control's: what differs lies inside "
        "the bar."
    )


def _bar_tokens(table: Table) -> dict[str, str]:
    """Mean tokens of each condition's bar, from the probe and series that have most conditions."""
    data = table.data[table.data["bar_tokens"].notna()]
    if data.empty:
        return {}
    most = data.groupby(["probe", "series"], sort=False)["condition"].transform("size")
    data = data[most == most.max()].drop_duplicates("condition")
    return {str(row["condition"]): fixed(row["bar_tokens"], 1) for row in data.to_dict("records")}


def _arm(arm: Arm, arms: Sequence[Arm], tokens: str) -> str:
    size = f", {tokens} tokens on average" if tokens else ""
    policy = f", under the policy {name(arm.policy)}" if arm.policy else ""
    options = f" ({name(arm.at)})" if arm.at else ""
    where = f"at placement {name(arm.placement)}{options}{policy}{size}"
    if arm.role == "control":
        return f"{name(arm.name)} without a status bar" + policy
    if arm.role == "placebo":
        own = [name(other.name) for other in arms if other.role == "bar" and placebo_for(other, arms) is arm]
        of = f"of {', '.join(own)}" if own else "of a bar that was not run"
        return (
            f"{name(arm.name)}, a neutral text with tag, heading, number of lines, role and token length {of}, its "
            f"wording assigned by cluster, {where}"
        )
    if arm.role == "mismatched":
        return f"{name(arm.name)}, a true-looking bar about something that was not asked, {where}"
    form = f" ({name(arm.form)})" if arm.form else ""
    return f"{name(arm.name)}, the bar {name(arm.bar)}{form} {where}"


def _probes(facts: Facts) -> str:
    parts = counted(facts.tables)
    texts = []
    for probe in dict.fromkeys(part.probe for part in parts):
        mine = [part for part in parts if part.probe == probe]
        limit = text_at(facts.manifest, "config", "probe", probe, "max_new_tokens")
        what = PROBES.get(probe, "as configured") + (
            f", up to {limit} tokens" if limit and probe != "choose" else ""
        )
        texts.append(f"{name(probe)} ({what}): {'; '.join(_series(part) for part in mine)}.")
    lost = sum(part.excluded for part in parts)
    done = f"{len(facts.run.cells):,}"
    planned = "" if facts.expected is None else f" of {facts.expected:,} planned"
    texts.append(
        f"In all {done}{planned} cells were finished; {lost:,} of them failed for good or have no score and are in no rate "
        "or mean."
    )
    left_out = value_at(facts.manifest, "left_out")
    if isinstance(left_out, list) and left_out:
        texts.append(f"Left out: {names([str(reason) for reason in left_out])}.")
    return " ".join(texts)


def _series(part: Counted) -> str:
    return f"{SERIES.get(part.series, name(part.series))}, {part.cells:,} cells in {part.clusters:,} clusters"


def _model(facts: Facts) -> str:
    manifest = facts.manifest
    digest = short_hash(text_at(manifest, "model", "sha256") or text_at(manifest, "inputs", "weights"))
    known = [
        f"weights SHA-256 {name(digest)}" if digest else "",
        f"source {name(text_at(manifest, 'model', 'source'))}" if text_at(manifest, "model", "source") else "",
        f"revision {name(text_at(manifest, 'model', 'revision'))}" if text_at(manifest, "model", "revision") else "",
        f"chat template {name(text_at(manifest, 'inputs', 'template'))}" if text_at(manifest, "inputs", "template") else "",
    ]  # fmt: skip
    details = "; ".join(text for text in known if text)
    text = (
        f"The model was {name(facts.model)}" + (f" ({details})" if details else "") + f"{_engine(manifest)}."
    )
    sentences = [text, _decoding(facts), _thinking(manifest), _timing(manifest)]
    return " ".join(sentence for sentence in sentences if sentence)


def _engine(manifest: Mapping[str, Any]) -> str:
    engine = text_at(manifest, "engine", "engine") or text_at(manifest, "engine", "backend")
    if not engine:
        return ""
    version = next(
        (
            found
            for key in ("engine_version", engine, "version")
            if (found := text_at(manifest, "engine", key))
        ),
        "",
    )
    text = f", run with {name(' '.join([engine, version]).strip())}{ENGINES.get(engine, '')}"
    dtype, device = text_at(manifest, "engine", "dtype"), text_at(manifest, "engine", "device")
    text += f" in {name(dtype)}" if dtype else ""
    return text + (f" on {_hardware(manifest, device)}" if device else "")


def _hardware(manifest: Mapping[str, Any], device: str) -> str:
    gpus = value_at(manifest, "gpus")
    gpu = text_at(manifest, "engine", "gpu") or (str(gpus[0]) if isinstance(gpus, list) and gpus else "")
    if device != "cpu":
        return name(gpu or device)
    model, count = text_at(manifest, "cpu", "model"), text_at(manifest, "cpu", "count")
    cores = f", {count} cores" if count else ""
    memory = value_at(manifest, "memory_bytes")
    size = f", {memory / 2**30:.0f} GiB of memory" if isinstance(memory, int) else ""
    return f"a CPU ({name(model)}{cores}{size})" if model else "a CPU"


def _decoding(facts: Facts) -> str:
    drawn = [part.probe for part in counted(facts.tables) if part.probe != "choose"]
    found = value_at(facts.manifest, "config", "model", "decoding")
    if not drawn or not isinstance(found, Mapping):
        return ""
    if found.get("source") == "model":
        return "Replies were sampled with the settings of the model's own generation configuration."
    temperature = found.get("temperature")
    if temperature == 0:
        return "Replies were decoded greedily."
    return (
        f"Replies were sampled at temperature {temperature} (top-p {found.get('top_p')}, top-k {found.get('top_k')}, "
        f"repetition penalty {found.get('repetition_penalty')})."
    )


def _thinking(manifest: Mapping[str, Any]) -> str:
    mode = text_at(manifest, "config", "model", "thinking")
    return {"": "", "off": "Thinking was off."}.get(mode, f"Thinking was on (mode {name(mode)}).")


def _timing(manifest: Mapping[str, Any]) -> str:
    if text_at(manifest, "measure") != "latency":
        return "Requests were batched and shared prefixes, so that no latency was measured."
    cache = text_at(manifest, "config", "latency", "cache")
    return (
        "Latency was measured one request at a time, the conditions in counterbalanced order"
        + (f", with a {name(cache)} prefix cache" if cache else "")
        + "."
    )


def _any(table: Table, column: str) -> bool:
    """Whether any row of a table knows a value."""
    return bool(len(table.data)) and column in table.data.columns and bool(table.data[column].notna().any())


def _statistics(facts: Facts) -> str:
    tables = facts.tables
    chosen, compared = tables["choose"], tables["comparisons"]
    said = ["Clusters are the unit of every interval and test."]
    if _any(chosen, "sensitivity"):
        said.append(
            "Sensitivity is the log odds of the call where it is due minus those where it is forbidden, bias minus their "
            "mean, per cluster and then averaged, with 95 % Student's t intervals [@student1908]; BCa bootstrap intervals "
            "over clusters stand beside them [@efron1987]."
        )
    if _any(chosen, "auc_within"):
        said.append("AUC is the Mann–Whitney statistic over all pairs [@mann1947].")
    if _any(chosen, "p_due") or _any(tables["rates"], "rate") or _any(tables["ask"], "rate"):
        said.append(
            "Rates and probabilities have 95 % Wilson intervals [@wilson1927] on the effective number of observations, "
            "corrected for few clusters [@korn1998] with degrees of freedom of at most twice the clusters that hold the "
            "rarer outcome plus one; replies that were cut off count as failures."
        )
    if _any(tables["detection"], "d_prime"):
        said.append("d′ and criterion are pooled over clusters with the log-linear correction [@hautus1995].")
    if (tables["tokens"].data["thinking"] > 0).any() or _any(chosen, "thoughts"):
        said.append(
            "Thinking is the mean number of tokens restricted to the limit τ, the same in every condition [@royston2013]."
        )
    if len(compared.data):
        said += _comparisons(facts, compared)
    if len(tables["slopes"].data):
        said.append(
            "Slopes against length are of least-squares lines within each cluster, averaged over clusters."
        )
    return " ".join(said)


def _comparisons(facts: Facts, table: Table) -> list[str]:
    data = table.data
    most = int(data["clusters"].max())
    how = (
        f"over all sign patterns up to {st.EXACT_CLUSTERS} clusters"
        if most <= st.EXACT_CLUSTERS
        else f"exact up to {st.EXACT_CLUSTERS} clusters, {st.MONTE_CARLO:,} random sign patterns beyond [@phipson2010]"
    )
    said = [
        "Conditions were compared in pairs at the same decision points, by a two-sided sign-flip permutation test over "
        f"clusters [@fisher1935], {how}."
    ]
    family = int((data["label"] == "confirmatory").sum())
    if family and facts.sequential:
        stopped = (
            "and ended when every confirmatory comparison was settled"
            if facts.stopped_early
            else "to its planned end"
        )
        said.append(
            f"The run was looked at after every cluster {stopped}. The confirmatory family, fixed in advance, is "
            f"sensitivity, bar minus placebo of the same placement (comparisons: {family}): its p and interval are "
            "anytime-valid, from a normal mixture of martingales for symmetric differences [@delapena1999; @howard2021], "
            "with Bonferroni's correction; other comparisons have no verdict."
        )
    elif family:
        said.append(
            f"The confirmatory family, fixed in advance, is sensitivity, bar minus placebo of the same placement "
            f"({family} comparison{'s' if family > 1 else ''}), corrected after Holm [@holm1979]; all else is exploratory "
            "and not corrected."
        )
    if (data["unit"] == "share").any():
        said.append(
            "Differences of shares have Newcombe's intervals for paired proportions, on the effective number of "
            "observations [@newcombe1998; @zou2008]."
        )
    if data["measure"].isin(list(TOKENS)).any():
        said.append(
            "Tokens are compared as ratios of means with t intervals by linearisation [@cochran1977]."
        )
    if data["measure"].isin(LATENCIES).any():
        said.append("Seconds are compared as geometric means of paired ratios with t intervals on the log.")
    if _any(table, "p_mcnemar"):
        said.append("Where a cluster holds one pair, the exact McNemar test stands beside [@mcnemar1947].")
    said.append(
        "A comparison is equivalent where two one-sided tests at 5 % reject a difference as large as the stated margin "
        f"[@schuirmann1987] (margins: {margin_words(table)}), else better or worse where its p is below {st.ALPHA}, else "
        f"inconclusive; below {MIN_CLUSTERS} clusters every comparison is inconclusive."
    )
    if _any(table, "more_clusters"):
        said.append(
            "For an inconclusive comparison the number of further clusters is given that would settle it in 80 % of cases "
            "if difference and spread are as observed [@julious2004]."
        )
    said.append(
        f"The smallest detectable difference is given at {st.POWER:.0%} power".replace("%", " %")
        + " from the observed spread of the clusters."
    )
    return said


def _attention(facts: Facts) -> str:
    if not facts.captures:
        return ""
    data = facts.captures[0]
    cells = sum(len(capture.data.cells) for capture in facts.captures)
    text = (
        f"Attention was captured by replaying the recorded token ids of {cells:,} cells; shares are of what lies outside "
        "the sinks, averaged over layers and heads, then over the sides of a cluster, then over clusters. Differences were "
        "tested as above, corrected after Holm over regions [@holm1979]."
    )
    heads = data.tables.get("heads")
    if heads is not None and _any(heads, "p"):
        text += (
            " Heads were chosen on one half of the clusters and tested on the other with a max-T step-down permutation "
            "[@westfall1993]."
        )
    return text + " All of this is exploratory."


def _code(facts: Facts) -> str:
    manifest = facts.manifest
    version = text_at(manifest, "harness")
    revision, dirty = text_at(manifest, "git", "revision"), value_at(manifest, "git", "dirty")
    text = f"The run {name(facts.run_id)} was made with Tailgauge" + (f" {version}" if version else "")
    if revision:
        state = " with uncommitted changes" if dirty is True else ""
        text += f", revision {name(short_hash(revision))}{state}"
    versions = [
        f"{package} {found}"
        for package in ("torch", "numpy", "scipy", "statsmodels")
        if (found := text_at(manifest, "packages", package))
    ]
    python = text_at(manifest, "python")
    parts = [*([f"Python {python}"] if python else []), *versions]
    text += f" ({names(parts)})" if parts else ""
    begun = _DAY.match(text_at(manifest, "started"))
    return text + (f", begun on {begun[0]}." if begun else ".")
