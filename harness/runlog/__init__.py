"""The run log: a folder per run with a manifest, append-only rows and their published parquet form.

`results/<experiment>/<run_id>/{manifest.json,samples.jsonl,samples.parquet,timings.parquet,tokens.parquet,
tables/,figures/,report.html,report.md}`.
Rows are written the moment a cell is done; everything else in the folder can be rebuilt from them.
The room knows records, files and configurations as plain data; it knows no model, no scorer and no plan.
"""

from harness.runlog.codec import record_from_json, record_to_json
from harness.runlog.identity import config_digest, differences, run_folder, run_id, safe_name
from harness.runlog.log import RunLog
from harness.runlog.manifest import read_manifest, update_manifest
from harness.runlog.pieces import read_pieces, text_of, write_pieces
from harness.runlog.provenance import provenance
from harness.runlog.redact import redact
from harness.runlog.rows import failed, read_records, write_records
from harness.runlog.tables import (
    finalize,
    load_dataset,
    published_order,
    records_from_parquet,
    samples_dataset,
)

__all__ = [
    "RunLog",
    "config_digest",
    "differences",
    "failed",
    "finalize",
    "load_dataset",
    "provenance",
    "published_order",
    "read_manifest",
    "read_pieces",
    "read_records",
    "record_from_json",
    "record_to_json",
    "records_from_parquet",
    "redact",
    "run_folder",
    "run_id",
    "safe_name",
    "samples_dataset",
    "text_of",
    "update_manifest",
    "write_pieces",
    "write_records",
]
