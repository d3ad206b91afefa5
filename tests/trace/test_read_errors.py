"""Bad input is an error that says where, what was found, and what to do."""

import contextlib
import gzip
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import public, write

from pagesim.errors import TraceError
from pagesim.trace import read_trace


def zipped(data: bytes) -> bytes:
    """Without the time of day, which would change the names of tests."""
    return gzip.compress(data, mtime=0)


HEADER = "arrival_s,prompt_tokens,output_tokens\n"
GOOD = "0,10,20\n1,11,21\n2,12,22\n"
MOONCAKE = '{{"timestamp": {}, "input_length": {}, "output_length": 5, "hash_ids": {}}}\n'


def complaint(path, **options) -> str:
    with pytest.raises(TraceError) as raised:
        read_trace(path, **options)
    assert raised.value.exit_code == 2
    return str(raised.value).removeprefix(str(path))


@pytest.mark.parametrize(("row", "message"), [
    ("3,5,12.5", "output tokens must be a whole number, got '12.5'"),
    ("3,abc,5", "prompt tokens must be a whole number, got 'abc'"),
    ("3,,5", "prompt tokens must be a whole number, got ''"),
    ("3,nan,5", "prompt tokens must be a whole number, got 'nan'"),
    ("3,inf,5", "prompt tokens must be a whole number, got 'inf'"),
    ("3,-4,5", "prompt tokens must not be negative, got '-4'"),
    ("3,5,-1", "output tokens must not be negative, got '-1'"),
    ("3,3000000000,5", "prompt tokens must be at most 2,147,483,647, got '3000000000'"),
    ("-5,5,5", "arrival must not be negative, got '-5'"),
    ("nan,5,5", "arrival must be a finite number, got 'nan'"),
    ("inf,5,5", "arrival must be a finite number, got 'inf'"),
    (",5,5", "arrival must be a finite number, got ''"),
    ("soon,5,5", "arrival must be a finite number, got 'soon'"),
    ("1787267980082,5,5", "arrival makes no sense in the unit of column 'arrival_s', got '1787267980082': it lies centuries ahead; "
                          "name the column after its unit: arrival_ms, arrival_us or arrival_ns"),
    ("3,5", "2 fields, the header has 3 (arrival_s, prompt_tokens, output_tokens): '3,5'; complete or remove the row"),
    ("3,5,6,7", "4 fields, the header has 3 (arrival_s, prompt_tokens, output_tokens): '3,5,6,7'; complete or remove the row"),
])
def test_a_bad_row_is_named_by_its_line(tmp_path, row, message):
    path = write(tmp_path, HEADER + GOOD + row + "\n" + GOOD)
    assert complaint(path) == f":5: {message}"


def test_three_good_rows_and_a_short_one_are_refused_and_not_skipped(tmp_path):
    assert complaint(write(tmp_path, HEADER + GOOD + "3,5")).startswith(":5: 2 fields")


def test_the_first_bad_line_is_named_whichever_column_it_is_in(tmp_path):
    path = write(tmp_path, HEADER + GOOD + "3,4,x\ny,4,5\n3,z,5\n")
    assert complaint(path) == ":5: output tokens must be a whole number, got 'x'"


def test_blank_lines_and_quoted_line_breaks_count_as_lines(tmp_path):
    path = write(tmp_path, 'note,arrival_s,prompt_tokens,output_tokens\n\n"a\nb",0,1,2\n\nc,1,x,2\n')
    assert complaint(path) == ":6: prompt tokens must be a whole number, got 'x'"


def test_lines_are_counted_over_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("pagesim.trace.source_file._CHUNK_BYTES", 32)
    assert complaint(write(tmp_path, HEADER + "0,1,2\n" * 1872 + "0,1,12.5\n")) == ":1874: output tokens must be a whole number, got '12.5'"


@pytest.mark.parametrize(("arrivals", "line", "found"), [
    (("-5", "0", "3"), 2, "arrival must not be negative, got '-5'"), (("0", "nan", "3"), 3, "arrival must be a finite number, got 'nan'"),
    (("0", "1", "inf"), 4, "arrival must be a finite number, got 'inf'")])
def test_times_that_are_negative_or_not_finite_are_refused_in_json_too(tmp_path, arrivals, line, found):
    names = {"nan": "NaN", "inf": "Infinity"}
    csv = write(tmp_path, HEADER + "".join(f"{arrival},1,2\n" for arrival in arrivals))
    json = write(tmp_path, "".join(f'{{"arrival_s": {names.get(arrival, arrival)}, "prompt_tokens": 1, "output_tokens": 2}}\n'
                                   for arrival in arrivals), "trace.jsonl")
    assert complaint(csv) == f":{line}: {found}"
    for name in names.items():
        found = found.replace(*name)
    assert complaint(json) == f":{line - 1}: {found}"


@pytest.mark.parametrize(("value", "got"), [("12.5", "'12.5'"), ('"many"', "'many'"), ("true", "'true'"), ("null", "'null'"),
                                            ("[1]", "'[1]'"), ("1" + "0" * 400, None)])
def test_a_json_value_that_is_no_count_is_named(tmp_path, value, got):
    path = write(tmp_path, f'{{"arrival_s": 0, "prompt_tokens": {value}, "output_tokens": 2}}\n')
    message = complaint(path)
    assert message.startswith(":1: prompt tokens must be a whole number, got ")
    assert got is None or message.endswith(got)


def test_a_json_row_without_a_key_is_named(tmp_path):
    text = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2}\n{"arrival_s": 0, "prompt_tokens": 1}\n'
    assert complaint(write(tmp_path, text)) == ":2: output tokens must be a whole number, got no 'output_tokens'"


@pytest.mark.parametrize(("line", "start"), [
    ('{"arrival_s": 0,', "not a JSON object on one line"), ("[1, 2]", "not a JSON object: '[1, 2]'; a JSON trace has one object a line"),
    ("0,1,2", "not a JSON object on one line"), ('{"a": ' + "9" * 5000 + "}", "not a JSON object on one line"),
    ('{"a": ' + "[" * 100_000, "not a JSON object on one line")])
def test_a_line_that_is_no_json_object_is_named(tmp_path, line, start):
    path = write(tmp_path, '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2}\n' + line + "\n")
    assert complaint(path).startswith(f":2: {start}")


@pytest.mark.parametrize(("tokens", "num_ids", "expected"), [(20, 2, 1), (1024, 3, 2), (1025, 2, 3)])
def test_a_wrong_number_of_ids_is_refused(tmp_path, tokens, num_ids, expected):
    rows = "".join(f'{{"prompt_tokens": {tokens}, "output_tokens": 1, "prefix_ids": {ids}, "prefix_block_tokens": 512}}\n'
                   for tokens, ids in ((512, [0]), (tokens, list(range(num_ids)))))
    assert complaint(write(tmp_path, rows)) == (
        f":2: prefix_ids has {num_ids} ids for a prompt of {tokens} tokens, expected {expected} (one for each 512 tokens or part of them); "
        "the row is damaged, or its blocks have another size than the rows above or prefix_block_tokens say")


@pytest.mark.parametrize("tokens", ["1e99", "-5", "1.5", "NaN"])
def test_a_prompt_that_is_no_count_is_named_also_where_the_row_has_ids(tmp_path, tokens):
    assert complaint(write(tmp_path, MOONCAKE.format(0, tokens, [0]))).startswith(":1: prompt tokens must ")


@pytest.mark.parametrize("ids", ['"0 1"', "[0, null]", "[0, 1.5]", "3", "[true, 0]"])
def test_hash_ids_that_are_no_list_of_ids_are_refused(tmp_path, ids):
    assert re.match(":1: hash_ids must be a list of ids, got ", complaint(write(tmp_path, MOONCAKE.format(0, 1024, ids))))


@pytest.mark.parametrize(("column", "value", "message"), [
    ("max_tokens", "3", "max_tokens is below the request's own output tokens, got '3'"),
    ("max_tokens", "x", "max_tokens must be a whole number, got 'x'"),
    ("num_samples", "0", "num_samples must be at least 1, got '0'"),
    ("num_samples", "-1", "num_samples must not be negative, got '-1'")])
def test_optional_columns_are_checked_too(tmp_path, column, value, message):
    assert complaint(write(tmp_path, f"prompt_tokens,output_tokens,{column}\n5,5,\n5,5,{value}\n")) == f":3: {message}"


@pytest.mark.parametrize("sizes", ["16,32", "0,0", "x,16"])
def test_the_size_of_a_prefix_block_is_one_number(tmp_path, sizes):
    first, second = sizes.split(",")
    text = f"prompt_tokens,output_tokens,prefix_ids,prefix_block_tokens\n5,5,1,{first}\n5,5,1,{second}\n"
    assert "prefix_block_tokens must be" in complaint(write(tmp_path, text))


def test_the_size_of_a_prefix_block_is_one_number_over_chunks_too(tmp_path, monkeypatch):
    monkeypatch.setattr("pagesim.trace.source_file._CHUNK_BYTES", 16)
    text = "prompt_tokens,output_tokens,prefix_ids,prefix_block_tokens\n" + "5,5,1,16\n" * 9 + "5,5,1,32\n" * 9
    assert complaint(write(tmp_path, text)) == ":11: prefix_block_tokens must be the same number in all rows, at least 1, got '32'"


def test_a_missing_column_lists_what_was_seen_and_what_is_understood(tmp_path):
    message = complaint(write(tmp_path, "arrival_s,prompt_tokens,colour\n0,1,red\n"))
    assert message.startswith(":1: no column with the output tokens; the columns are 'arrival_s', 'prompt_tokens', 'colour'. pagesim reads azure, ")
    assert "plain ones with the columns arrival_s,prompt_tokens,output_tokens; for the output it also understands generated_tokens" in message


@pytest.mark.parametrize(("text", "found"), [
    (HEADER + '0,"1,000",2\n', "'1,000'"), (HEADER + '0,"1,000,000",2\n', "'1,000,000'"), (HEADER + '0,"1 000",2\n', "'1 000'"),
    (HEADER + '0,"a\nb",2\n', r"'a\nb'"), (HEADER + '0,"1""0",2\n', "'1\"0'"), (HEADER + '0,"10\n",2\n', r"'10\n'"), (HEADER + '0,"10,",2\n', "'10,'"), (HEADER + '0," 1,0 ",2\n', "'1,0'"),
    (HEADER.replace(",", "\t") + '0\t"1\t0"\t2\n', r"'1\t0'"), (HEADER.replace(",", "\t") + '0\t1,000\t2\n', "'1,000'")])
def test_a_cell_is_quoted_as_the_file_has_it(tmp_path, text, found):
    assert complaint(write(tmp_path, text)) == f":2: prompt tokens must be a whole number, got {found}"


def test_another_separator_is_suspected(tmp_path):
    assert "(is it separated by something else than commas or tabs?)" in complaint(write(tmp_path, HEADER.replace(",", ";") + "0;1;2\n"))


@pytest.mark.parametrize(("header", "message"), [
    ("prompt_tokens,output_tokens,max_token", "unknown column 'max_token'; did you mean 'max_tokens'?"),
    ("arrivals_s,prompt_tokens,output_tokens", "unknown column 'arrivals_s'; did you mean 'arrival_s'?"),
    ("arrival_s,prompt_tokens,input_tokens,output_tokens", "columns 'prompt_tokens' and 'input_tokens' both give the prompt; keep one"),
    ("arrival_s,arrival_ms,prompt_tokens,output_tokens", "columns 'arrival_s' and 'arrival_ms' both give the arrival; keep one"),
    ("arrival_s,prompt_tokens,Prompt Tokens,output_tokens", "column 'Prompt Tokens' is there twice; rename or remove one"),
    ("timestamp,input_length,output_length", "'timestamp' beside 'input_length' is milliseconds in Mooncake's files and seconds in others, "
                                             "and this one has no hash_ids to tell; rename it arrival_ms or arrival_s")])
def test_columns_that_cannot_be_told_are_refused(tmp_path, header, message):
    row = ",".join("1" for _ in header.split(","))
    assert complaint(write(tmp_path, f"{header}\n{row}\n")) == f":1: {message}"


def test_a_column_that_is_nobodys_is_left_alone(tmp_path):
    assert len(read_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens,Model,turn,type\n0,1,2,gpt,1,text\n"))) == 1


def test_a_file_without_a_header_is_refused(tmp_path):
    assert complaint(write(tmp_path, GOOD)) == (":1: no header, the first line is '0,10,20'; put the column names above it, such as "
                                                "arrival_s,prompt_tokens,output_tokens")


@pytest.mark.parametrize("text", ["0,0,0,,0,0\r\n600,0,0,,0,0\r\n", "0,1.5,2.25,Gamma,0.5,1\n"])
def test_a_servegen_rate_file_is_told_from_a_trace(tmp_path, text):
    message = complaint(write(tmp_path, text))
    assert message.startswith(":1: a ServeGen rate file (window start, rate, CV, distribution and its arguments; ")
    assert message.endswith("it holds no requests; draw some with 'pagesim trace generate --arrivals gamma --rate R --cv CV'")


def test_the_public_servegen_file_is_refused():
    assert "a ServeGen rate file" in complaint(public("servegen_deepseek-r1_client0_rate_windows.csv"))


def test_a_git_lfs_pointer_is_told_from_a_trace(tmp_path):
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2\nsize 12345\n"
    assert complaint(write(tmp_path, text)) == (":1: a Git LFS pointer, not the data itself; run 'git lfs pull' in its repository, or download "
                                                "the file")


@pytest.mark.parametrize("text", ["", "\n\n", " \n", zipped(b"")], ids=["nothing", "newlines", "blanks", "gzip of nothing"])
def test_an_empty_file_is_refused(tmp_path, text):
    assert complaint(write(tmp_path, text)) == ": the file is empty; a trace has a header and one row a request"


@pytest.mark.parametrize("text", [HEADER, HEADER.strip(), HEADER + "\n\n"])
def test_a_header_alone_is_refused(tmp_path, text):
    assert complaint(write(tmp_path, text)) == ": no requests: a header and nothing below it"


def test_a_file_of_failed_requests_only_is_refused_with_their_count(tmp_path):
    path = write(tmp_path, HEADER + "0,0,0\n1,0,0\n2,0,5\n")
    assert complaint(path) == (": no requests: all 3 rows were dropped (2 with 0 prompt and 0 output tokens; 1 with 0 prompt tokens)")


@pytest.mark.parametrize(("data", "what"), [
    (b"PAR1\x00\x01", "this is a Parquet file; write it as CSV"), (b"PK\x03\x04abcdef", "this is a zip archive; unpack it"),
    (b"\x28\xb5\x2f\xfd1234", "this is zstd-compressed; unpack it or use gzip"), ("ab".encode("utf-16"), "this is UTF-16 text; write it as UTF-8"),
    (b"\x00\x01\x02", "binary data, not text; a trace is CSV or JSON lines, plain or gzipped"),
    (zipped(b"\x00\x01"), "binary data, not text; a trace is CSV or JSON lines, plain or gzipped")])
def test_what_is_no_text_is_refused(tmp_path, data, what):
    assert complaint(write(tmp_path, data)) == f": {what}"


@pytest.mark.parametrize("data", [zipped((HEADER + GOOD * 99).encode())[:-30], b"\x1f\x8bgarbage garbage garbage",
                                  zipped(HEADER.encode()) + b"garbage", zipped(HEADER.encode())[:-8] + b"12345678"])
def test_damaged_gzip_is_refused(tmp_path, data):
    assert re.fullmatch(r": damaged gzip data \(.+\); fetch the file again", complaint(write(tmp_path, data)))


def test_a_missing_file_is_named_with_one_that_is_there(tmp_path):
    write(tmp_path, HEADER + GOOD, "azure_conv.csv")
    assert complaint(tmp_path / "azure_cnv.csv") == f": no such file; did you mean {tmp_path / 'azure_conv.csv'}?"
    assert complaint(tmp_path / "nowhere" / "x.csv") == ": no such file"


def test_a_directory_is_refused(tmp_path):
    assert complaint(tmp_path) == ": a directory; name one trace file in it"


def test_strict_names_the_first_row_that_would_be_dropped(tmp_path):
    assert complaint(write(tmp_path, HEADER + GOOD + "3,5,0\n"), strict=True).startswith(":5: a request without prompt or output tokens")


def test_burstgpts_failed_requests_are_counted_and_strict_refuses_them():
    path = public("burstgpt_1_head400.csv")
    source = read_trace(path).source
    assert (source.read, source.dropped) == (400, {"0 prompt and 0 output tokens": 17})
    assert "a request without prompt or output tokens, which is a failed one" in complaint(path, strict=True)


def test_a_span_of_decades_shows_a_wrong_unit(tmp_path):
    message = complaint(write(tmp_path, HEADER + "0,1,2\n604800000,1,2\n"))
    assert message.startswith(": the last request arrives 19 years after the first, which makes no sense: column 'arrival_s' is not in the unit")


def test_mooncake_keys_with_seconds_show_a_wrong_unit(tmp_path):
    path = write(tmp_path, MOONCAKE.format(0, 512, [0]) + MOONCAKE.format(61.114, 512, [0]))
    assert complaint(path) == (":2: mooncake times are whole milliseconds, got '61.114'; if the file counts seconds, rename the key to arrival_s "
                               "and state prefix_block_tokens")


@pytest.mark.parametrize("row", ["yesterday,1,2", "2023-11-17,1,2", "17,1,2", "2023-11-16 18:17:04+00:00,1,2"])
def test_a_wall_clock_that_cannot_be_read_is_named(tmp_path, row):
    path = write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,1,2\n" + row)
    assert complaint(path) == (":3: arrival must be a date and time like 2023-11-16 18:17:03.9799600, with a zone in all rows or in none, got "
                               f"{row.split(',')[0]!r}")


SAMPLES = [(HEADER + GOOD).encode(), ("x," + HEADER + "".join(f'"a,b",{row}\n' for row in GOOD.splitlines())).encode(),
           (MOONCAKE.format(0, 1024, [0, 1]) + MOONCAKE.format(5, 12, [0])).encode(),
           b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.97,1,2\r\n2023-11-16 18:17:04.97,1,2",
           b"arrival_s\tprompt_tokens\toutput_tokens\tsession\tturn\tthink_s\n0\t5\t1\ta\t1\t\n\t9\t1\ta\t2\t0.5\n3\t7\t1\tb\t1\t\n",
           b"prompt_tokens,output_tokens,chat_id,parent_chat_id,prefix_ids,beam_width\n17,1,7,-1,0 1,2\n33,0,8,7,0 1 2,\n40,1,9,8,0 1 2,1\n",
           b'{"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
           b'{"session_id": "a", "delay": 500, "input_length": 900, "output_length": 5, "hash_ids": [0, 2]}\n']


@settings(max_examples=400)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=3))
def test_damaged_bytes_are_read_or_refused_and_never_end_in_another_error(tmp_path_factory, data, edits):
    for at, num_removed, inserted in edits:
        data = data[:at] + inserted + data[at + num_removed:]
    path = write(tmp_path_factory.getbasetemp(), data, "damaged")
    with contextlib.suppress(TraceError):
        source = read_trace(path).source
        assert source.read >= 1


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    with contextlib.suppress(TraceError):
        read_trace(write(tmp_path_factory.getbasetemp(), data, "noise"))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_one(tmp_path, limit):
    with pytest.raises(TraceError, match=f"limit is the number of rows to keep, at least 1, got {limit}"):
        read_trace(write(tmp_path, HEADER + GOOD), limit=limit)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "trace.csv")
    assert complaint(tmp_path / "trace.csv") == ": a pipe, and a trace is read twice; write it to a file first"
