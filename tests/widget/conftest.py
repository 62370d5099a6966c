"""Scopes that are closed after the test."""

from __future__ import annotations

import pytest

from fake_engine import FakeEngine
from genscope.widget import Scope
from sender_bench import Bench
from tiny import tiny_model


@pytest.fixture
def made():
    scopes = []

    def make(model=None, *args, **options):
        scope = Scope(FakeEngine(20) if model is None else model, *args, **options)
        scopes.append(scope)
        return scope

    yield make
    for scope in scopes:
        scope.close()


@pytest.fixture(scope="session")
def model():
    return tiny_model("llama")


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.sender.close()
