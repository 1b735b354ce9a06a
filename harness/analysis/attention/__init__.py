"""Analysis of captured attention: frames, statistics, tables, figures, the interactive page and its report.

Reads the files that `harness.attention.store` describes and knows no model; nothing in here imports torch.
"""
