"""Servers over one `state.db`, behind haproxy: the scenarios of replicas that share a PostgreSQL."""

from functools import partial

import pytest

from replicas import test_clients, test_faults, test_once, test_reload, test_restart

test_a_client_calls_and_all_replicas_answer = test_clients.test_a_client_calls_and_all_replicas_answer
test_a_large_result_is_read_through_any_replica = test_clients.test_a_large_result_is_read_through_any_replica
test_a_person_is_asked = test_clients.test_a_person_is_asked_and_answers_through_another_replica
test_progress_arrives = test_clients.test_progress_arrives
test_what_is_put_is_there_everywhere_at_once = test_clients.test_what_is_put_is_there_everywhere_at_once
test_a_session_goes_on_after_its_replica_is_gone = test_faults.test_a_session_goes_on_after_its_replica_is_gone
test_no_call_fails_in_a_rolling_restart = test_faults.test_no_call_fails_in_a_rolling_restart
test_no_slow_call_fails_in_a_rolling_restart = test_faults.test_no_slow_call_fails_in_a_rolling_restart
test_of_eight_writers_on_a_key_one_wins = test_faults.test_of_eight_writers_on_a_key_one_wins
test_others_go_on_when_one_is_killed = test_faults.test_others_go_on_when_one_is_killed
test_a_call_that_is_lost_is_not_made_again = test_once.test_a_call_that_is_lost_is_not_made_again
test_one_call_reloads_all_replicas = test_reload.test_one_call_reloads_all_replicas
test_a_second_signal_ends_it_at_once = test_restart.test_a_second_signal_ends_it_at_once
test_tasks_and_questions_are_finished = test_restart.test_tasks_and_questions_are_finished
test_what_is_left_is_reported_with_how_far_it_got = test_restart.test_what_is_left_is_reported_with_how_far_it_got


@pytest.fixture
def database_url():
    """No PostgreSQL is started."""


@pytest.fixture
def replicas(replicas, tmp_path):
    return partial(replicas, home=tmp_path / "home")


@pytest.fixture
def balanced(replicas, balance):
    three = replicas(3)
    return three, balance("haproxy", three)
