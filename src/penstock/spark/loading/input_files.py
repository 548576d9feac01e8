"""A file, a folder or a table as a DataFrame, by what its name tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException

from penstock.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["explain_misfits", "guess_format", "read_file"]

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
}
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".snappy"}


def guess_format(file: str) -> str:
    """What a file is, by its name."""
    suffixes = [suffix for suffix in Path(file).suffixes if suffix not in _COMPRESSED]
    if suffixes and suffixes[-1] in _FORMATS:
        return _FORMATS[suffixes[-1]]
    if Path(file).is_dir():
        return "parquet"
    raise InvalidInput(
        "FILE", f"{file!r:.200} does not tell what it is; give --format parquet, csv, json, orc or table"
    )


def read_file(spark: SparkSession, file: str, kind: str, schema: str | None) -> DataFrame:
    """The rows of a file; of CSV the types are guessed unless a schema tells them."""
    try:
        if kind == "table":
            return spark.table(file)
        # Spark's own current folder is that of the process that started it.
        place = file if "://" in file else str(Path(file).absolute())
        reader = spark.read if schema is None else spark.read.schema(schema)
        if kind == "csv":
            separator = "\t" if ".tsv" in Path(file).suffixes else ","
            # As RFC 4180 has it: quotes are doubled, and a field may hold lines.
            reader = reader.options(header="true", sep=separator, escape='"', multiLine="true")
            reader = reader.option("inferSchema", str(schema is None).lower())
        # A value that does not fit its type would be null without a word.
        reader = reader.option("mode", "FAILFAST")
        return reader.format(kind).load(place)
    except ParseException:
        raise InvalidInput("--schema", f"{schema!r:.200} cannot be read; write 'name type, name type'") from None
    except AnalysisException as error:
        raise NotFound(f"{file!r:.200} cannot be read: {str(error).splitlines()[0]}") from None


@contextmanager
def explain_misfits(file: str) -> Iterator[None]:
    """Say of a row that does not fit its schema, which Spark finds when it reads, what to do about it."""
    try:
        yield
    except Exception as error:
        found = re.search(r"MALFORMED_[A-Z_]+[^]]*\] ?(.*)", str(error))
        if found is None:
            raise
        raise InvalidInput(
            "FILE",
            f"a row of {file!r:.200} does not fit its columns ({found[1][:300]}). Nothing was enqueued; mend it, or "
            "give --schema with the types it has, such as string",
        ) from None
