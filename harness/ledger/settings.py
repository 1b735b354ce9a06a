"""What `tailgauge ledger` can be asked for: its typed configuration."""

from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from harness.budget import Price
from harness.config import FrozenConfig, InjectionConfig, Int, ModelConfig, ScenarioConfig, first_mistake
from harness.errors import ConfigError

DEFAULT_BLOCK = 16
"""Tokens per block where nothing says otherwise: vLLM's on a GPU. Its CPU build takes multiples of 32."""


class DatedPrice(Price):
    """A price of `conf/ledger.yaml`: an assumption, and when it was made."""

    as_of: str = Field(min_length=1)
    """The day on which the price was looked up or assumed."""


class LedgerConfig(FrozenConfig):
    """Which bar, where, under which policies; what a token counts."""

    model: ModelConfig
    """Its tokenizer and chat template alone are used."""
    scenario: ScenarioConfig
    """Its first sample is billed where no trajectory is given."""
    bar: dict[str, Any]
    placement: dict[str, Any]
    policies: tuple[str, ...] = Field(min_length=1)
    """Names of `conf/policy`. The control, `never`, is always there."""
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Policy → options that take the place of its file's."""
    rules: InjectionConfig = InjectionConfig()
    requests: Int | None = Field(default=None, ge=1, le=100_000)
    seed: Int = 7
    block: Int | None = Field(default=None, ge=1)
    blocks: Int | None = Field(default=None, ge=1)
    replies: Literal["billed", "cached"] = "billed"
    """Whether what the model wrote is in the cache when it comes back in the next prompt: `cached` in vLLM, `billed` where
    a provider's cache holds prompts alone."""
    cached_weight: float = Field(default=0.1, ge=0, le=1)
    crossover: tuple[str, str] | None = ("replace", "append")
    """Two policies whose cumulative bills are held against each other."""
    prices: dict[str, DatedPrice] = Field(default_factory=dict)
    name: str | None = None
    """Folder in `results/ledger`; null: made of trajectory, bar and placement, with a digest."""
    results: str = Field(default="results", min_length=1)

    @model_validator(mode="after")
    def _is_possible(self) -> "LedgerConfig":
        twice = [name for number, name in enumerate(self.policies) if name in self.policies[:number]]
        if twice:
            raise ValueError(f"policies: {twice[0]!r} stands there twice; remove one")
        stray = [name for name in self.options if name not in self.policies]
        if stray:
            raise ValueError(
                f"options.{stray[0]}: not among policies={list(self.policies)}; add it or remove the option"
            )
        return self

    @property
    def block_size(self) -> int:
        engine = self.model.engine
        return self.block or (engine.block_size if engine else None) or DEFAULT_BLOCK


def resolve(plain: dict[str, Any]) -> LedgerConfig:
    """Raises ConfigError with one line: the key, what is wrong, what to do."""
    try:
        return LedgerConfig.model_validate(plain)
    except ValidationError as error:
        raise ConfigError(first_mistake(error, "harness/ledger/settings.py").removeprefix(": ")) from error
