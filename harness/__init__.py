"""Tailgauge: a gauge at the tail of the context. See README.md and the module headers."""

__version__ = "0.1.0"
