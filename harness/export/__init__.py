"""A finished run for other programs: Inspect's log format, MLflow, trackio.

A layer beside the analysis: it reads records and tables and writes what somebody else's viewer or server shows.
Each client is imported inside the module that needs it (`pip install 'tailgauge[inspect]'`, `[mlflow]`,
`[trackio]`); nothing here is needed to run, score or report, and nothing goes to a network unless an address is
given.
"""
