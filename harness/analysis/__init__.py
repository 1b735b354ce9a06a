"""From a run folder's parquet files to tables, figures and a report. Never calls a model.

Light on purpose: the modules below import pandas, scipy and matplotlib, so they are imported by name
only where a report is made.
"""
