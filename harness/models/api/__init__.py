"""Models behind a provider's API: one module per provider, and what all of them share."""
