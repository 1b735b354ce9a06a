"""tokens.parquet: the bytes behind every token id of a run, so that its texts can be read without its tokenizer.

A run's prompts are recorded as token ids. This small table (one row per distinct id) turns them back into text
anywhere, also where the model is not. Bytes and not text, since a token may hold part of a character.
pyarrow is imported when needed. Knows no tokenizer: whoever writes the table hands one in as a function.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from harness.errors import RunLogError
from harness.runlog.files import atomic_file
from harness.runlog.rows import SAMPLES_NAME

PIECES_NAME = "tokens.parquet"
_LISTS = ("prompt_ids", "forced_ids", "output.token_ids")
_THOUGHTS = "output.thoughts.list.element.token_ids.list.element"


def write_pieces(run_dir: Path, piece: Callable[[int], bytes]) -> Path:
    """Writes run_dir/tokens.parquet (columns `id` int32, `piece` binary, ordered by id) for every id that
    samples.parquet holds; `piece` gives the bytes of one id. Raises RunLogError when a file refuses."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: set[int] = set()
    with pq.ParquetFile(run_dir / SAMPLES_NAME) as file:
        # By leaf: the structs of thoughts also hold numbers that nobody needs here.
        leaves = [file.schema.column(i).path for i in range(len(file.schema.names))]
        wanted = [leaf for leaf in leaves if leaf.split(".list.")[0] in _LISTS or leaf == _THOUGHTS]
        for group in range(file.num_row_groups):
            for column in file.read_row_group(group, columns=wanted).columns:
                found.update(_numbers(column.combine_chunks()))
    ids = sorted(found)
    table = pa.table(
        {"id": pa.array(ids, pa.int32()), "piece": pa.array([piece(i) for i in ids], pa.binary())}
    )
    path = run_dir / PIECES_NAME
    with atomic_file(path, "every record is kept") as handle:
        pq.write_table(table, handle, compression="zstd")
    return path


def _numbers(array: "pa.Array") -> Iterable[int]:  # type: ignore[name-defined] # noqa: F821
    """Distinct whole numbers inside nested lists and structs."""
    import pyarrow as pa

    while not pa.types.is_integer(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.flatten()
    return (value for value in array.unique().to_pylist() if value is not None)


def read_pieces(run_dir: Path) -> dict[int, bytes]:
    """id → bytes; empty where the run has no tokens.parquet. Raises RunLogError for an unreadable one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run_dir / PIECES_NAME
    if not path.is_file():
        return {}
    try:
        table = pq.read_table(path, columns=["id", "piece"])
    except (OSError, pa.ArrowException) as error:
        raise RunLogError(
            f"{path}: cannot be read ({error}); give the run's command again, which writes it anew"
        ) from error
    return dict(zip(table["id"].to_pylist(), table["piece"].to_pylist(), strict=True))


def text_of(ids: Iterable[int], pieces: Mapping[int, bytes]) -> str:
    """The text of token ids; bytes that are no UTF-8 become U+FFFD, an id without a piece `⟨id⟩`."""
    joined = b"".join(pieces[i] if i in pieces else f"⟨{i}⟩".encode() for i in ids)
    return joined.decode("utf-8", errors="replace")
