"""What is read out of answers, form by form; and what must not be taken for a number or for the answer."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vst.evals import number
from vst.evals.extract import before_stop, extract

FORMS = {
    # plain, signs, leading and trailing dots
    "18": "18", "0": "0", "007": "7", "18.": "18", "18.0": "18", "3.50": "7/2", ".5": "1/2", "0.125": "1/8",
    "5.": "5", "-5": "-5", "−7": "-7", "–7": "-7", "+7": "7", "-0": "0", "-0.5": "-1/2", "1.23.": "123/100",
    # thousands
    "1,234": "1234", "12,345": "12345", "1,234,567": "1234567", "1,234.50": "2469/2", "1,234.": "1234",
    "1,00,000": "100000", "1.234,56": "30864/25", "1{,}234": "1234", "1\u202f234": "1234",
    "1\u00a0234\u00a0567": "1234567", "1\\,234": "1234",
    # currency
    "$18": "18", "$ 18": "18", "$1,200": "1200", "-$5": "-5", "$-5": "-5", "\\$18": "18", "US$18": "18",
    "€12.50": "25/2", "£3": "3", "¥100": "100", "₹500": "500", "Rs. 500": "500", "USD 1,800": "1800", "USD18": "18",
    "18€": "18", "50¢": "50", "$18.00": "18", "$0.50": "1/2", "-$1,234.50": "-2469/2",
    # units and percent
    "18 dollars": "18", "18 eggs.": "18", "18km": "18", "18 km/h": "18", "$18/day": "18", "18 per day": "18",
    "25%": "25", "12.5 %": "25/2", "20°": "20", "100m²": "100", "2nd": "2", "1.5 hours": "3/2", "~18": "18",
    "(18)": "18", "[18]": "18", "**18**": "18", "`18`": "18", "18!": "18", "18;": "18", "=18": "18", ": 18": "18",
    # fractions
    "3/4": "3/4", "-3/4": "-3/4", "3 / 4": "3/4", "1 1/2": "3/2", "1-1/2": "3/2", "½": "1/2", "1½": "3/2",
    "2 ¾": "11/4", "⅓": "1/3", "⅞": "7/8", "\\frac{3}{4}": "3/4", "\\dfrac{1}{2}": "1/2", "2\\frac{1}{2}": "5/2",
    "1/3 cup": "1/3", "6/2": "3", "1,000/4": "250",
    # powers and words
    "1e3": "1000", "2.5e-1": "1/4", "1E6": "1000000", "2.5 × 10^3": "2500", "3 x 10^2": "300", "4*10^{2}": "400",
    "2\\times 10^3": "2000", "3 million": "3000000", "$2.5 million": "2500000", "12 thousand": "12000", "5k": "5000",
    "1.5 billion": "1500000000", "$1.5k": "1500",
}  # fmt: skip
"""An answer as it is written, and its value as a fraction."""


def test_the_table_of_forms_is_long_enough() -> None:
    assert len(FORMS) >= 80


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read_as_its_value_after_the_marker_and_at_the_end_of_a_sentence(form: str) -> None:
    value = Fraction(FORMS[form])
    assert number.last(f"So we get {form}") == value
    found = extract(f"We add 2 and 3.\n#### {form}")
    assert (found.strict, found.flexible) == (value, value)
    assert extract(f"We add 2 and 3.\nThe answer is {form}").flexible == value


NO_NUMBERS = [
    "", "none", "10:30", "3:1", "1.2.3", "192.168.0.1", "2024-01-05", "1/2/2024", "x2", "A1", "2/0", "no. seven",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_only_looks_like_a_number_is_none(text: str) -> None:
    assert list(number.numbers(text)) == []
    assert extract(f"#### {text}").strict is None


SEVERAL = {
    "10-4": ["10", "4"], "3 - 4": ["3", "4"], "5–3": ["5", "3"], "1,5": ["1", "5"], "1, 2, 3": ["1", "2", "3"],
    "7 x 3": ["7", "3"], "1 234": ["1", "234"], "10^2": ["10", "2"], "at 10:30 we had 5": ["5"],
    "2+2=4": ["2", "2", "4"], "3 -4": ["3", "-4"], "(5)-(3)": ["5", "3"], "50/50/7": [],
}  # fmt: skip


@pytest.mark.parametrize("text", SEVERAL)
def test_several_numbers_stay_apart(text: str) -> None:
    assert [str(one.value) for one in number.numbers(text)] == SEVERAL[text]


def test_after_the_marker_a_space_separates_thousands() -> None:
    found = extract("#### 70 000")
    assert (found.strict, found.flexible) == (70000, 70000)
    assert extract("#### 12 eggs and 345 pens").strict == 12


RUN_ON = [
    "\n#### 99", "\n\nQuestion: What is 2 + 2?\nAnswer: 4\n#### 4", "\nQ: 7?\nA: 7", "<|im_end|>\n12", "</s> 5 6 7",
    " 42 and 43", "\nThe answer is 12.", "\nuser: and 9?", "\n" * 30 + "1000000",
]  # fmt: skip


@pytest.mark.parametrize("more", RUN_ON)
def test_text_that_runs_on_after_the_answer_changes_nothing(more: str) -> None:
    found = extract("16 - 3 - 4 = 9, 9 * 2 = 18.\n#### 18" + more)
    assert (found.strict, found.flexible) == (18, 18)


@pytest.mark.parametrize("more", ["\n\nQuestion: What is 2 + 2?\nAnswer: 4\n#### 4", "<|im_end|>\n12", "</s> 5"])
def test_without_a_marker_only_what_comes_before_the_stop_counts(more: str) -> None:
    found = extract("16 - 3 - 4 = 9, and 9 * 2 = 18." + more)
    assert (found.strict, found.flexible) == (None, 18)


def test_a_stop_that_was_sent_ends_the_answer_too() -> None:
    assert extract("18 then\nEND 7", ("\nEND",)).flexible == 18
    assert before_stop("\nQuestion: 1", ()) == "\nQuestion: 1"


def test_a_question_at_the_very_beginning_does_not_hide_the_whole_answer() -> None:
    assert extract("\nUser: 5 is\n#### 5").strict == 5


def test_the_strict_rule_wants_the_number_right_after_the_marker() -> None:
    assert extract("#### The answer is 18").strict is None
    assert extract("#### The answer is 18").flexible == 18
    assert extract("####18").strict == extract("####  $18").strict == extract("#### **18**").strict == 18
    assert extract("#### \\boxed{18}").strict == 18
    assert extract("The answer is 18").strict is None


def test_named_answers_come_before_later_numbers() -> None:
    assert extract("So the answer is 18. I hope that helps, 24/7!").flexible == 18
    assert extract("\\boxed{18} is it, out of 20").flexible == 18
    assert extract("Answer: 18\nThat took 3 steps").flexible == 18


def test_a_marker_without_a_number_leaves_what_stood_before_it() -> None:
    found = extract("9 * 2 = 18\n#### eighteen")
    assert (found.strict, found.flexible) == (None, 18)


@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=1))
def test_every_integer_is_read_back_in_every_common_spelling(value: Fraction) -> None:
    for text in (f"{int(value)}", f"{int(value):,}", f"{int(value)}.", f"{int(value)}.00", f"{int(value):,} eggs"):
        found = extract(f"#### {text}")
        assert found.strict == found.flexible == value


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    found = extract(text)
    assert found.strict is None or "####" in text
    assert isinstance(found.flexible, (Fraction, type(None)))
