"""Whatever is missing or doubled: every call has one result, in order."""

from ask.sessions.things import paired
from hypothesis import given
from hypothesis import strategies as st

from onetool.ask.messages import Assistant, Call, Result, User
from onetool.ask.sessions.records import INTERRUPTED, UNDER_WAY, TimedMessage, repair


def asked(*ids):
    return Assistant(calls=tuple(Call(id=id, name=f"t.{id}") for id in ids))


def result(id, content="done"):
    return Result(call=id, name=f"t.{id}", content=content)


def interrupted(id):
    return Result(call=id, name=f"t.{id}", content=INTERRUPTED, ok=False)


def after(*messages):
    return [one.message for one in repair(TimedMessage(message, 1.0) for message in messages)]


def test_what_is_whole_stays_as_it_is():
    said = [
        User(text="a"),
        asked("1", "2"),
        result("1"),
        result("2"),
        Assistant(text="b"),
        User(text="c"),
        User(text="d"),
    ]
    assert after(*said) == said


def test_missing_results_are_supplied_where_they_belong():
    assert after(User(text="a"), asked("1", "2", "3"), result("2")) == [
        *(User(text="a"), asked("1", "2", "3"), interrupted("1"), result("2"), interrupted("3"))
    ]
    assert after(asked("1"), User(text="go on")) == [asked("1"), interrupted("1"), User(text="go on")]


def test_the_last_calls_of_a_turn_that_goes_on_are_under_way():
    said = [asked("1"), User(text="a"), asked("2", "3"), result("2")]
    whole = [one.message for one in repair((TimedMessage(message, 1.0) for message in said), goes_on=True)]
    under_way = Result(call="3", name="t.3", content=UNDER_WAY, ok=False)
    assert whole == [asked("1"), interrupted("1"), User(text="a"), asked("2", "3"), result("2"), under_way]


def test_results_are_put_in_the_order_of_their_calls():
    assert after(asked("1", "2"), result("2"), result("1")) == [asked("1", "2"), result("1"), result("2")]


def test_results_without_calls_and_second_ones_are_left_out():
    late = [asked("1"), User(text="a"), result("1"), result("9")]
    assert after(*late) == [asked("1"), interrupted("1"), User(text="a")]
    assert after(asked("1"), result("1", "x"), result("1", "y")) == [asked("1"), result("1", "x")]


def test_two_calls_with_one_id_have_two_results():
    assert after(asked("1", "1"), result("1", "x"), result("1", "y"), result("1", "z")) == [
        *(asked("1", "1"), result("1", "x"), result("1", "y"))
    ]
    assert after(asked("1", "1"), result("1", "x")) == [asked("1", "1"), result("1", "x"), interrupted("1")]


def test_a_supplied_result_has_the_time_of_its_call():
    assert repair([TimedMessage(asked("1"), 7.0), TimedMessage(User(text="a"), 9.0)])[1].at == 7.0


IDS = st.sampled_from("123")
MESSAGES = st.one_of(
    st.builds(User, text=st.just("u")), st.lists(IDS, max_size=3).map(lambda ids: asked(*ids)), IDS.map(result)
)


@given(st.lists(MESSAGES, max_size=12))
def test_everything_is_paired_and_mending_again_changes_nothing(messages):
    whole = after(*messages)
    assert paired(whole)
    assert after(*whole) == whole
    assert [one for one in whole if not isinstance(one, Result)] == [
        one for one in messages if not isinstance(one, Result)
    ]
