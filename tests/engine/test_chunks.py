"""Chunks of a stream, made one ahead."""

import threading

import pytest

from engine.disk.parts import ahead


def test_the_next_item_is_made_while_one_is_handled():
    is_made = threading.Event()

    def items():
        yield "first"
        is_made.set()
        yield "second"

    handled = []
    for item in ahead(items()):
        assert is_made.wait(60)  # for ever, if "second" were made only when it is asked for
        handled.append(item)
    assert handled == ["first", "second"]


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("the third line")

    handled = []
    with pytest.raises(ValueError, match="the third line"):
        handled.extend(ahead(items()))
    assert handled == [1]
