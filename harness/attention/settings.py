"""What a capture can be asked for: the typed configuration of `tailgauge attention`."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from harness.attention.store import GROUPS, MASKS, Scope
from harness.config import FrozenConfig, Int, first_mistake
from harness.errors import ConfigError
from harness.types import ProbeName, Series


class MaskConfig(FrozenConfig):
    """The causal check: spans that later rows are kept from seeing."""

    groups: tuple[str, ...] = ("bar", "target_calls", "records")
    """One mask each: a group of regions, or `records`, every call of the counted tool with its result; `[]` masks
    nothing."""
    scopes: tuple[Scope, ...] = ("later", "decision")
    layers: tuple[Int, ...] | None = None
    """None: in every layer."""


class ShownConfig(FrozenConfig):
    """Samples that are kept token by token, for heatmaps and the interactive page."""

    samples: Int = Field(default=1, ge=0)
    """The first so many samples; all their arms."""
    rows: Int = Field(default=96, ge=1)
    """Most rows that the page can be asked about: the last ones, from the follow-up on."""
    top: Int = Field(default=24, ge=1)
    """Keys kept per row, layer and head of the page."""
    bins: Int = Field(default=256, ge=2)
    """Bins a side of the whole-prompt heatmap."""


class AttentionConfig(FrozenConfig):
    """Which cells, which rows, what is kept of them."""

    folder: str = Field(default="attention", min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Folder within the run; another name keeps a second capture beside the first."""
    probes: tuple[ProbeName, ...] = ("choose", "act")
    """Cells of these are captured; whole-prompt heatmaps are made of the first one's."""
    series: tuple[Series, ...] = ("matched",)
    conditions: tuple[str, ...] | None = None
    """None: the control, the first bar that has a placebo, and that placebo."""
    clusters: Int | None = Field(default=None, ge=1)
    """The first so many episodes; None: all."""
    layers: tuple[Int, ...] | None = None
    heads: tuple[Int, ...] | None = None
    answer_tokens: tuple[Annotated[Int, Field(ge=0)], ...] = ()
    """Numbers of answer tokens, from 0, whose rows are kept besides the decision's."""
    path_every: Int = Field(default=1, ge=1)
    """Step along the generated tokens."""
    path_heads: Literal["mean", "each"] = "mean"
    top_k: Int = Field(default=10, ge=1)
    norm_weighted: bool = False
    mask: MaskConfig = MaskConfig()
    shown: ShownConfig = ShownConfig()
    query_block: Int = Field(default=64, ge=1)
    """Most captured rows worked on at once."""
    pack_tokens: Int = Field(default=2048, ge=16)
    """Most tokens in one forward pass."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    """None: as the run, as far as transformers can."""
    device: str = "auto"
    threads: Int | None = Field(default=None, ge=1)
    tolerance: float | None = Field(default=None, gt=0)
    """Largest difference between a recorded and the replayed log-probability of the asked-for choice; None: 0.01 in
    float32, 1 in half precision."""
    model_path: str | None = None
    """Folder with the run's weights, where they are no longer where the run found them."""


def resolve(plain: dict[str, Any]) -> AttentionConfig:
    """Raises ConfigError with one line: the key, what is wrong, what to do."""
    try:
        config = AttentionConfig.model_validate(plain)
    except ValidationError as error:
        raise ConfigError(first_mistake(error, "harness/attention/settings.py")) from error
    spans = [*(group for group in GROUPS if group not in ("template", "sinks")), *MASKS]
    for group in config.mask.groups:
        if group not in spans:
            raise ConfigError(
                f"mask.groups: {group!r} is no span to mask; expected some of {', '.join(spans)}"
            )
    if config.folder in ("tables", "figures"):
        raise ConfigError(f"folder={config.folder}: the run's own; choose another name")
    if not config.probes:
        raise ConfigError("probes: none is chosen; e.g. probes=[choose]")
    return config
