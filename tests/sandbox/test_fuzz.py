"""What a worker would never send is refused: with our own errors, in little time, and within the budget."""

import struct

import pytest
from helpers import calls

from onetool.sandbox import ProtocolError, wire
from onetool.sandbox.messages import EVENTS, FAILURES, read_event

from .fuzz import BUDGETS, check_plain, fuzz, read, recorded

pytestmark = pytest.mark.attack("sandbox")

COUNT = 8_000  # some seconds


@pytest.fixture(scope="module")
def frames():
    return recorded()


def test_every_event_that_we_read_was_recorded(frames):
    kinds = {frame[0] >> 3 for frame in frames}
    # 11 is the last that a worker says.
    assert kinds == {*EVENTS, *FAILURES} - {11}


def test_the_frames_of_a_real_worker_are_read(frames):
    for frame in frames:
        for budget in BUDGETS:
            read(frame, budget)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_broken_frames_give_plain_data_or_our_own_errors(frames, seed):
    assert fuzz(frames, seed, count=COUNT // 2) == COUNT // 2


def test_data_that_are_not_plain_are_noticed():
    same = []
    deep = []
    for _ in range(61):
        deep = [deep]
    for value in ([same, same], deep, {1: 2}, (1,), "x" * 1000, object()):
        with pytest.raises((AssertionError, TypeError)):
            check_plain([value], 100)


def listed(indexes):
    return wire.message(2, wire.message(11, wire.message(1, bytes(indexes))))


def sleep(content):
    return wire.message(3, wire.message(29, content))


def test_a_node_without_content_is_refused():
    # What follows its arena would be taken for its kind: a text that weighs nothing, any number of which would do.
    weightless = wire.message(2, b"\x12\x00") + b"\x42\x00"
    frame = wire.message(6, weightless + wire.message(2, listed([0] * 100)) + b"\x08\x01")
    with pytest.raises(ProtocolError):
        read_event(frame).value(100)


def test_a_sleep_is_a_float():
    with pytest.raises(ProtocolError):
        read_event(sleep(wire.number(1, 2**70 - 1)))


@pytest.mark.parametrize("seconds", [float("inf"), float("-inf"), float("nan")])
def test_a_sleep_has_an_end(seconds):
    with pytest.raises(ProtocolError):
        read_event(sleep(b"\x09" + struct.pack("<d", seconds)))


@pytest.mark.parametrize("cut", ["\x12\x05", "\x12\x05ab", "\x09", "\x09abc", "\x0dab"])
def test_a_field_that_is_cut_off_is_refused(cut):
    with pytest.raises(ProtocolError):
        list(wire.fields(cut.encode(), 0, len(cut)))


def test_arguments_one_by_one_take_no_longer_than_in_one_go():
    arena = wire.message(7, b"\x12\x02\x12\x00")
    call = wire.message(2, b"\x10\x00" * 40_000 + arena)
    with calls(1_000_000):
        args, _ = read_event(call).arguments(4_000_000)
        assert args == [None] * 40_000
