"""A host on which the wall clock steps and the storage is slow, for every Python process that has this on PYTHONPATH.

``VST_TEST_CLOCK=SECONDS@AFTER`` adds SECONDS to ``time.time``, ``time.time_ns`` and ``datetime.now`` once the process
has lived for AFTER seconds: what a step of the clock looks like from inside. The monotonic clock is left alone, as the
kernel leaves it alone. ``VST_TEST_READ_S=SECONDS`` makes each positioned read of the publisher take that long, so that
it goes on, and too slowly.
"""

import datetime
import os
import sys
import time

BEGUN = time.monotonic()


def step_the_clock(by, after):
    plain, plain_ns, moment = time.time, time.time_ns, datetime.datetime

    def moved():
        return by if time.monotonic() - BEGUN >= after else 0.0

    class Stepped(moment):
        @classmethod
        def now(cls, tz=None):
            return moment.now(tz) + datetime.timedelta(seconds=moved())

    time.time = lambda: plain() + moved()
    time.time_ns = lambda: plain_ns() + int(moved() * 1e9)
    # The publisher imports what builds schemas from the type itself; it reads the clock by the functions only.
    if "vst.transfer.child" not in sys.orig_argv:
        datetime.datetime = Stepped


def slow_the_reads(seconds):
    plain = os.preadv

    def preadv(*args):
        time.sleep(seconds)
        return plain(*args)

    os.preadv = preadv


if "VST_TEST_CLOCK" in os.environ:
    by, _, after = os.environ["VST_TEST_CLOCK"].partition("@")
    step_the_clock(float(by), float(after))
if "VST_TEST_READ_S" in os.environ and "vst.transfer.child" in sys.orig_argv:
    slow_the_reads(float(os.environ["VST_TEST_READ_S"]))
