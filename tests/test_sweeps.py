"""The sample of a sweep that a quick test takes: spread over the sweep, never empty, the whole sweep where asked."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.sweeps import Share, first_of, sample, sampled


@pytest.mark.parametrize("one_in", [1, 2, 7, 30])
def test_a_sample_is_every_nth_place_and_at_least_one(one_in: int) -> None:
    taken = sample(range(20), one_in, "a sweep")
    assert len(taken) in {max(1, 20 // one_in), 20 // one_in + 1}
    assert {later - earlier for earlier, later in zip(taken, taken[1:], strict=False)} <= {one_in}


def test_an_empty_sweep_has_an_empty_sample() -> None:
    assert sample([], 7, "a sweep") == []


@pytest.mark.parametrize("count", [1, 5, 30])
def test_values_outside_the_sample_are_slow(count: int) -> None:
    values = sampled(range(count), 7, "a parameter")
    quick = [value for value in values if isinstance(value, int)]
    assert quick == list(sample(range(count), 7, "a parameter"))
    assert all(value.marks[0].name == "slow" for value in values if not isinstance(value, int))
    assert len(values) == count


def test_a_sweep_that_counts_takes_every_nth_number() -> None:
    first, second, third = islice(Share(5, "a sweep").counted(), 3)
    assert 1 <= first <= 5
    assert (second - first, third - second) == (5, 5)
    assert list(islice(Share(1, "a sweep").counted(), 3)) == [1, 2, 3]


def test_results_of_a_sample_are_among_those_of_the_whole_sweep() -> None:
    Share(5, "").check_seen({"a"}, {"a", "b"})
    Share(5, "").check_seen(set(), {"a", "b"})
    Share(1, "").check_seen({"a", "b"}, {"a", "b"})
    for one_in, seen in ((5, {"c"}), (1, set[str]()), (1, {"a"})):
        with pytest.raises(AssertionError):
            Share(one_in, "").check_seen(seen, {"a", "b"})


def test_sweeps_begin_at_different_places() -> None:
    assert len({first_of(9, f"sweep {number}") for number in range(100)}) == 9
