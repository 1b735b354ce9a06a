"""Flat error types, named after the boundary that was crossed.

Each carries one clear line: what is wrong, where (file, key or line), what was expected and what to
do. `cli.main` prints that line and exits with code 2; nothing else catches `TailgaugeError`.
"""


class TailgaugeError(Exception):
    """Base of every error that is the user's to mend. `str(error)` is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ConfigError(TailgaugeError):
    """The resolved configuration has an unknown key, a wrong type or an impossible combination."""


class ScenarioError(TailgaugeError):
    """A scenario file is not valid; the line names file, key and reason."""


class TemplateError(TailgaugeError):
    """A chat template or a scenario template refuses, loops or leaves its sandbox."""


class ConfoundError(TailgaugeError):
    """Two arms differ by more than the bar's span, found before any model runs."""


class WeightsError(TailgaugeError):
    """Model weights are missing, unreachable, corrupt or cannot be converted."""


class ModelError(TailgaugeError):
    """A backend cannot be started or does not support what was asked of it."""


class ProviderError(TailgaugeError):
    """A request failed for good; becomes a `provider_error` row, never a crash."""


class RunLogError(TailgaugeError):
    """A run folder cannot be written, read or resumed."""


class ReportError(TailgaugeError):
    """A run has not the data that a table or figure needs."""


class AttentionError(TailgaugeError):
    """A run cannot be replayed for its attention, or a capture cannot be read."""
