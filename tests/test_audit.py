"""The audit context: set for a block. tests/api/test_observing.py sees it in every worker, and jobs apart."""

from __future__ import annotations

import pytest

from committer.logs import audit, current_audit


def test_nothing_is_set_outside() -> None:
    assert current_audit() == {}


def test_only_the_keys_given_are_set_and_the_rest_comes_back() -> None:
    with audit(ji="job", ta="task"):
        with audit(st="outer"):
            with audit(st="inner", ta="other"):
                assert current_audit() == {"ji": "job", "ta": "other", "st": "inner"}
            assert current_audit() == {"ji": "job", "ta": "task", "st": "outer"}
        assert current_audit() == {"ji": "job", "ta": "task"}
    assert current_audit() == {}


def test_it_comes_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="x"), audit(ji="job"):
        raise ValueError("x")
    assert current_audit() == {}


def test_what_is_given_out_is_a_copy() -> None:
    with audit(ji="job"):
        current_audit()["ji"] = "other"
        assert current_audit() == {"ji": "job"}
