"""Format options: what is honoured, and what is refused by name. What Spark makes of it: test_golden_formats.py."""

from __future__ import annotations

import io
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from committer.errors import ConfigurationError, UnsupportedError
from committer.spark.formats import FORMATS, parse_format
from committer.spark.formats.text import CsvFormat

SCHEMA = StructType([StructField("s", StringType())])


def written(name: str, compression: str | None, **options: str) -> bytes:
    class Kept(io.BytesIO):
        data = b""

        def close(self) -> None:
            if not self.closed:
                self.data = self.getvalue()
            super().close()

    into = Kept()
    made = pickle.loads(pickle.dumps(parse_format(name, compression, options)))
    rows = pa.table({"s": ["x", None]})
    schema = made.file_schema(rows.schema, SCHEMA.json())
    file = made.open(into, schema, SCHEMA.json())
    file.write(rows.cast(schema))
    file.close()
    return into.data


@pytest.mark.parametrize("name", FORMATS)
def test_every_codec_can_be_written_and_names_its_files(name: str) -> None:
    for codec, infix in FORMATS[name].compressions.items():
        made = parse_format(name, codec.upper(), {})
        assert made.suffix in {f"{infix}.{name}", f".{name}{infix}"}
        assert written(name, codec)


@pytest.mark.parametrize(
    ("name", "codec"), [("parquet", "lz4"), ("parquet", "lzo"), ("orc", "brotli"), ("csv", "snappy"), ("json", "lz4")]
)
def test_codecs_that_spark_knows_and_this_cannot_write(name: str, codec: str) -> None:
    with pytest.raises(UnsupportedError, match=f"compression '{codec}'") as raised:
        parse_format(name, codec, {})
    assert raised.value.next_step.startswith("use ")


def test_zstd_text_is_one_frame() -> None:
    data = written("json", "zstd")
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as unpacked:
        assert unpacked.read() == b'{"s":"x"}\n{}\n'


@pytest.mark.parametrize(
    ("name", "option", "value", "problem"),
    [
        ("csv", "lineSep", "\r\n", "lineSep cannot be honoured"),
        ("csv", "dateFormat", "dd.MM.yyyy", "dateFormat cannot be honoured"),
        ("csv", "sep", "||", "sep cannot be"),
        ("csv", "sep", '"', "sep cannot be the quote"),
        ("csv", "quote", "", "quote cannot be"),
        ("csv", "nullValue", "a,b", "nullValue cannot be"),
        ("csv", "nullValue", " ", "nullValue cannot be"),
        ("csv", "encoding", "UTF-16", "encoding 'UTF-16'"),
        ("csv", "timestampFormat", "dd.MM.yyyy", "timestampFormat"),
        ("json", "timestampNTZFormat", "yyyy-MM-dd HH:mm:ssXXX", "timestampNTZFormat"),
        ("json", "pretty", "true", "pretty cannot be honoured"),
    ],
)
def test_what_spark_takes_and_this_cannot_honour(name: str, option: str, value: str, problem: str) -> None:
    with pytest.raises(UnsupportedError, match=problem):
        parse_format(name, None, {option: value})


@pytest.mark.parametrize(
    ("name", "option", "value"), [("csv", "header", "yes"), ("json", "header", "true"), ("parquet", "sep", ";")]
)
def test_what_makes_no_sense(name: str, option: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the option {option}"):
        parse_format(name, None, {option: value})


def test_options_in_any_case_reach_the_format() -> None:
    from committer.spark.options import parse_options

    found = parse_options({"path": "/t", "format": "CSV", "quoteall": "TRUE", "sep": "\\t", "maxrecordsperfile": "5"})
    assert found.file_format == CsvFormat("none", quote_all=True, sep="\t")
    assert found.max_records_per_file == 5
