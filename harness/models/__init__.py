"""Backends: requests in, outputs out. One module per engine; each imports its engine itself and is
imported only when chosen (by Hydra's `_target_`)."""
