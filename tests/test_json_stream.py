"""A JSON file is read value by value, whatever the parts in which it is read."""

import io
import json
import sys

import pytest

from engine.data import json_stream
from engine.errors import UserError

VALUE = {"version": 1.25e-3, "data": [12345, "a中\"😀", {"x": [1, None, True]}, [], {}],
         "empty": [], "last": -12}


def read(text):
    """The object in a text, whose "data" is read element by element."""
    stream = json_stream.JsonStream("file", io.StringIO(text))
    found = {key: [stream.value() for _ in stream.elements("\"data\"")] if key == "data"
             else stream.value() for key in stream.keys("the file")}
    stream.end()
    return found


@pytest.mark.parametrize("part", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"ensure_ascii": False},
                                    {"separators": (",", ":")}])
def test_it_reads_what_the_json_module_reads(part, layout, monkeypatch):
    monkeypatch.setattr(json_stream, "_READ_CHARACTERS", part)
    assert read(json.dumps(VALUE, **layout)) == VALUE
    assert read('{"data": []}') == {"data": []}
    assert read("{}") == {}


@pytest.mark.parametrize("part", [1, 5, 1 << 20])
@pytest.mark.parametrize("text, where", [
    ("", "line 1, column 1: the file must be a JSON object"),
    ("[]", "line 1, column 1: the file must be a JSON object"),
    ('{"data": 3}', 'line 1, column 10: "data" must be a JSON array'),
    ('{"data": [1 2]}', "line 1, column 13: expecting ',' or ']'"),
    ('{"data": [1,]}', "line 1, column 13: a comma before the end"),
    ('{"data": [1,\n2,\n  {"a" 3}, 4, 5, 6]}', "line 3, column 8: Expecting ':' delimiter"),
    ('{"a": "x', "line 1, column 7: Unterminated string"),
    ('{"a": tru}', "line 1, column 7: Expecting value"),
    ('{1: 2}', "line 1, column 2: a key must be a text"),
    ('{"a": 1} x', "line 1, column 10: something follows")])
def test_an_error_names_line_and_column(part, text, where, monkeypatch):
    monkeypatch.setattr(json_stream, "_READ_CHARACTERS", part)
    with pytest.raises(UserError) as error:
        read(text)
    assert str(error.value).startswith(f"file, {where}")


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this Python reads all numbers")
def test_a_number_that_python_refuses_is_named():
    with pytest.raises(UserError, match="file, line 1, column 7: Exceeds the limit"):
        read(f'{{"a": {"1" * 5000}}}')
