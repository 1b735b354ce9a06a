"""Where the model looks: replays a finished run's token ids and keeps the wanted rows of its attention.

`rows` and `regions` say what is wanted and what the keys are called, `capture` takes it while the model
computes, `sinks` finds the positions that soak up attention, `replay` drives an engine over the cells,
`store` keeps what came out and `measures` turns masses into shares and lifts. `capture`, `chain`,
`takers`, `sinks` and `replay` import torch, the others do not; `harness.analysis.attention` reads the store without a model.
"""
