"""A host on which the wall clock steps and the storage is slow, for every Python process that has this on PYTHONPATH.

``VST_TEST_CLOCK=SECONDS@FILE`` adds SECONDS to ``time.time``, ``time.time_ns`` and ``datetime.now`` as soon as FILE is
there: what a step of the clock looks like from inside. The monotonic clock is left alone, as the kernel leaves it.
``VST_TEST_READ_S=SECONDS`` makes each positioned read of the publisher take that long, so that it goes on, and too
slowly. ``VST_TEST_STALL=SHARD:OFFSET@FILE`` makes its read at this place of a shard never return, once FILE was written
to say so: the tensors before it can be sent then, and no more.
"""

import datetime
import os
import sys
import time


def step_the_clock(by, when):
    plain, plain_ns, moment = time.time, time.time_ns, datetime.datetime

    def moved():
        return by if os.path.exists(when) else 0.0

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


def stall_a_read(shard, place, told):
    plain = os.preadv

    def preadv(file, buffers, offset, *flags):
        if offset == place and os.path.basename(os.readlink(f"/proc/self/fd/{file}")) == shard:
            with open(told, "w") as word:
                word.write("stalled")
            time.sleep(3600)
        return plain(file, buffers, offset, *flags)

    os.preadv = preadv


if "VST_TEST_CLOCK" in os.environ:
    by, _, when = os.environ["VST_TEST_CLOCK"].partition("@")
    step_the_clock(float(by), when)
if "VST_TEST_READ_S" in os.environ and "vst.transfer.child" in sys.orig_argv:
    slow_the_reads(float(os.environ["VST_TEST_READ_S"]))
if "VST_TEST_STALL" in os.environ and "vst.transfer.child" in sys.orig_argv:
    place, _, told = os.environ["VST_TEST_STALL"].partition("@")
    shard, _, offset = place.partition(":")
    stall_a_read(shard, int(offset), told)
