"""A text is cut into slots where its clauses are, and filled again without the loss of a byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriting.texts import slots, words

PARTS = ("价格实惠", "服务 很好", "，", "。", "！", "...", "…", ", ", ". ", "?!", "the room was clean",
         "3.5", "10:30", "e.g.", "😀", "👍🏽", "“", "”", "「", "'", "\u3000", " ", "\t", "\n", "\r\n",
         "é", "e\u0301", "がぎ", "한국", "שלום", "\u200d", "\ufeff", "[MASK]", "\u2028")
texts = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=5)), max_size=15).map("".join)


@settings(max_examples=500, deadline=None)
@given(texts)
def test_the_clause_put_back_gives_the_text_byte_for_byte(text):
    found = slots(text)
    assert len(found) != 1
    for slot in found:
        assert slot.filled(slot.clause) == text
        assert slot.clause == slot.clause.strip() and len(words(slot.clause)) >= 2
    starts = [len(slot.before) for slot in found]
    ends = [len(slot.before) + len(slot.clause) for slot in found]
    assert all(end <= start for end, start in zip(ends, starts[1:])), "slots do not overlap"


@pytest.mark.parametrize("text, clauses", [
    ("交通方便，房间很大。服务一般！", ["交通方便", "房间很大", "服务一般"]),
    ("不错的上网本,外形很漂亮,电池还可以", ["不错的上网本", "外形很漂亮", "电池还可以"]),
    ("体验2D巅峰 倚天屠龙记十大创新概览", ["体验2D巅峰", "倚天屠龙记十大创新概览"]),
    ("contains no wit , only labored gags ", ["contains no wit", "only labored gags"]),
    ("It costs 3,000.50 at 10:30, I think.", ["It costs 3,000.50 at 10:30", "I think"]),
    ("“Not so fast,” said the captain.", ["Not so fast", "said the captain"]),
    ("他说：“今天不去。”我们走吧", ["他说", "今天不去", "我们走吧"]),
    ("No second clause here.", []),
    ("Well, no second clause of two words.", []),
    ("", []), ("，。！", []),
])
def test_clauses_end_at_sentence_punctuation_of_either_script(text, clauses):
    assert [slot.clause for slot in slots(text)] == clauses
