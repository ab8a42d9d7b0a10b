"""A question set of our own: arithmetic word problems from seeded templates, so that an evaluation needs no file.

The same seed gives the same questions on every machine and with every Python: only integers are drawn, from SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction

from vst.evals.question import Question

NAMES = ("Ada", "Ben", "Chen", "Dora", "Emil", "Fatma", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena")
THINGS = ("apples", "books", "coins", "eggs", "pens", "shells", "stamps", "tickets")

Draw = Callable[[int, int], int]
Parts = tuple[str, str, int]


def _buy(draw: Draw, name: str, things: str) -> Parts:
    a, b = draw(11, 89), draw(11, 89)
    asked = f"{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?"
    return asked, f"{a} + {b} = {a + b}", a + b


def _give(draw: Draw, name: str, things: str) -> Parts:
    a, b = draw(50, 99), draw(11, 49)
    asked = f"{name} had {a} {things} and gave {b} away. How many {things} are left?"
    return asked, f"{a} - {b} = {a - b}", a - b


def _pack(draw: Draw, name: str, things: str) -> Parts:
    a, b = draw(3, 19), draw(3, 19)
    asked = f"{name} packs {a} boxes with {b} {things} each. How many {things} is that?"
    return asked, f"{a} * {b} = {a * b}", a * b


def _share(draw: Draw, name: str, things: str) -> Parts:
    each, friends = draw(3, 29), draw(3, 9)
    asked = f"{name} shares {each * friends} {things} equally among {friends} friends. How many does each get?"
    return asked, f"{each * friends} / {friends} = {each}", each


def _read(draw: Draw, name: str, things: str) -> Parts:
    a, b, c = draw(11, 39), draw(3, 9), draw(5, 30)
    total = a * b + c
    asked = f"{name} reads {a} pages a day for {b} days, then {c} more. How many pages is that?"
    return asked, f"{a} * {b} = {a * b}, {a * b} + {c} = {total}", total


def _pay(draw: Draw, name: str, things: str) -> Parts:
    price, count, rest = draw(3, 19), draw(3, 9), draw(1, 40)
    paid = price * count + rest
    asked = f"{name} buys {count} {things} at ${price} each and pays with ${paid}. How many dollars come back?"
    return asked, f"{count} * {price} = {price * count}, {paid} - {price * count} = {rest}", rest


def _lose(draw: Draw, name: str, things: str) -> Parts:
    a, b, c = draw(50, 99), draw(11, 49), draw(3, 40)
    asked = f"{name} had {a} {things}, lost {b} and found {c}. How many {things} now?"
    return asked, f"{a} - {b} = {a - b}, {a - b} + {c} = {a - b + c}", a - b + c


def _earn(draw: Draw, name: str, things: str) -> Parts:
    a, b, c = draw(11, 29), draw(3, 9), draw(3, 9)
    asked = f"{name} earns ${a} an hour and works {b} hours a day. How many dollars is that in {c} days?"
    return asked, f"{a} * {b} = {a * b}, {a * b} * {c} = {a * b * c}", a * b * c


TEMPLATES = (_buy, _give, _pack, _share, _read, _pay, _lose, _earn)


def make_questions(count: int, seed: int) -> tuple[Question, ...]:
    """``count`` different questions, one template after the other; the first ones do not depend on ``count``."""
    draw, found = _drawing(seed), dict[str, Question]()
    while len(found) < count:
        question = _make(draw, len(found))
        found.setdefault(question.text, question)
    return tuple(found.values())


def _make(draw: Draw, position: int) -> Question:
    template = TEMPLATES[position % len(TEMPLATES)]
    name, things = NAMES[draw(0, len(NAMES) - 1)], THINGS[draw(0, len(THINGS) - 1)]
    asked, steps, value = template(draw, name, things)
    return Question(asked, f"{steps}.\n#### {value}", Fraction(value))


def _drawing(seed: int) -> Draw:
    """Integers between two ends, both included, from a stream that ``seed`` decides."""
    stream = _stream(seed)

    def draw(low: int, high: int) -> int:
        return low + next(stream) % (high - low + 1)

    return draw


def _stream(seed: int) -> Iterator[int]:
    block = 0
    while True:
        yield int.from_bytes(hashlib.sha256(f"vst-arithmetic/{seed}/{block}".encode()).digest()[:8], "big")
        block += 1
