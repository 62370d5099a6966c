"""Random use of a prefix cache against a plain set of sequences: what is found, what is held, and what it may cost."""

from __future__ import annotations

import random
import threading

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cached_bytes import (
    A_TOKEN,
    LAYERS,
    check_account,
    check_fork,
    compute,
    expected,
    nodes_of,
    small_model,
)
from genscope.kernel_side.caching import growing
from genscope.kernel_side.caching.prefix_cache import PrefixCache

BUDGET = 50
"""Tokens for which there is room."""

SHARE = 4
"""Room behind a sequence is a part of its length. With that of the library short sequences would have none."""

sequences = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def shared(one, other):
    """How many ids two sequences begin with together."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Runs(RuleBasedStateMachine):
    """Runs that overlap, on a cache too small for all."""

    def __init__(self):
        super().__init__()
        self.prefixes = PrefixCache(BUDGET * A_TOKEN)
        self.model = small_model()
        self.ever = []  # all that was stored since it was last cleared
        self.all_kept = True  # nothing was evicted or refused since then
        self.open = []  # leases in use, with the paths that they pin
        self.going = []  # caches in use, with what is in them: some write behind the same prefix
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(growing, "_SHARE", SHARE)

    def lease(self, prompts, copies):
        """Look up, and compare with the plain model."""
        lease = self.prefixes.lease(self.model, prompts, copies=copies)
        for prompt, row in zip(prompts, lease.rows, strict=True):
            most = max((shared(prompt, one) for one in self.ever), default=0)
            assert row.known <= most
            if self.all_kept:
                assert row.known == most
            assert row.reused <= min(row.known, len(prompt) - 1)
            if row.end.kind == "differs":
                assert row.end.position == row.known
                assert row.end.asked == prompt[row.known]
                assert prompt[row.known] not in row.end.cached
                for token in row.end.cached:
                    assert any(one[: row.known + 1] == [*prompt[: row.known], token] for one in self.ever)
        if len(prompts) == 1:
            [row] = lease.rows
            assert row.reused == lease.columns == min(row.known, len(prompts[0]) - 1)
            assert row.nbytes == row.reused * A_TOKEN
        return lease

    @rule(prompt=sequences, more=st.lists(st.integers(0, 2), max_size=6), copies=st.integers(1, 2), done=st.booleans())
    def run(self, prompt, more, copies, done):
        lease = self.lease([prompt], copies)
        cache = lease.fork()
        check_fork(lease, cache)
        whole = [*prompt, *more]
        compute(lease, [whole] * copies, cache)
        before = self.prefixes.stats()
        # The last id was chosen and not fed, or the run was stopped behind its forward pass.
        ids = [*whole, 1] if done else whole
        new = lease.store([ids] * copies)
        after = self.prefixes.stats()
        if sum(after.not_stored.values()) == sum(before.not_stored.values()):
            self.ever.append(whole)
            if after.evictions == before.evictions:
                assert after.tokens == before.tokens + new
        else:
            self.all_kept = False
        if after.evictions > before.evictions:
            self.all_kept = False
        lease.close()

    @precondition(lambda self: self.ever)
    @rule(
        begins=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3), sequences), min_size=2, max_size=3),
        copies=st.integers(1, 2),
    )
    def batch(self, begins, copies):
        # Of what was stored all but the last few ids, so that rows with padding are found too.
        known = [(self.ever[which % len(self.ever)], cut, more) for which, cut, more in begins]
        prompts = [[*one[: max(0, len(one) - cut)], *more[:2]] for one, cut, more in known]
        with self.lease(prompts, copies) as lease:
            check_fork(lease, lease.fork())

    @precondition(lambda self: len(self.open) < 3)
    @rule(prompt=sequences)
    def hold(self, prompt):
        self.open.append(self.lease([prompt], 1))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2))
    def use_what_was_held(self, which):
        lease = self.open.pop(which % len(self.open))
        check_fork(lease, lease.fork())
        lease.close()

    @precondition(lambda self: len(self.going) < 4)
    @rule(prompt=sequences)
    def begin(self, prompt):
        with self.lease([prompt], 1) as lease:
            cache = lease.fork()
            compute(lease, [prompt], cache)
        self.going.append((list(prompt), cache))

    @precondition(lambda self: self.going)
    @rule(which=st.integers(0, 3), token=st.integers(0, 2), cut=st.integers(0, 2))
    def go_on(self, which, token, cut):
        ids, cache = self.going[which % len(self.going)]
        if cut < len(ids):
            cache.crop(-cut)
            del ids[len(ids) - cut :]
        ids.append(token)
        for layer in range(LAYERS):
            cache.update(*(one[:, :, -1:] for one in expected(ids, layer)), layer)

    @precondition(lambda self: self.going)
    @rule(which=st.integers(0, 3))
    def end(self, which):
        self.going.pop(which % len(self.going))

    @invariant()
    def runs_do_not_disturb_each_other(self):
        for ids, cache in self.going:
            for layer in range(LAYERS):
                held = cache.layers[layer]
                for ours, theirs in zip((held.keys, held.values), expected(ids, layer), strict=True):
                    assert torch.equal(ours, theirs)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2))
    def give_back(self, which):
        self.open.pop(which % len(self.open)).close()

    @rule()
    def clear(self):
        self.prefixes.clear()
        self.ever, self.all_kept = [], True
        assert self.prefixes.stats().nbytes == self.prefixes.stats().pinned

    @rule()
    def edit_a_weight(self):
        with torch.no_grad():
            self.model.lm_head.weight.add_(0.0)  # the same values, but it was written
        self.ever, self.all_kept = [], True

    @invariant()
    def accounts_are_right(self):
        check_account(self.prefixes)

    @invariant()
    def what_is_in_use_stays(self):
        pinned = {id(node) for node in nodes_of(self.prefixes) if node.pins}
        for lease in self.open:
            assert all(id(node) in pinned for node in lease._pinned)

    def teardown(self):
        self.patch.undo()
        for lease in self.open:
            lease.close()
        assert self.prefixes.stats().pinned == 0
        self.prefixes.clear()
        assert self.prefixes.stats().nbytes == 0


TestRuns = Runs.TestCase
TestRuns.settings = settings(
    max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck), deadline=None
)


def test_threads_get_nothing_wrong_and_leave_the_accounts_right():
    prefixes, model = PrefixCache(BUDGET * A_TOKEN), small_model()
    failures = []

    def work(seed):
        draw = random.Random(seed)
        try:
            for _ in range(150):
                prompt = [draw.randrange(3) for _ in range(draw.randint(1, 14))]
                with prefixes.lease(model, [prompt], copies=draw.randint(1, 2)) as lease:
                    cache = lease.fork()
                    check_fork(lease, cache)
                    compute(lease, [prompt] * lease.copies, cache)
                    lease.store([prompt] * lease.copies)
                if draw.random() < 0.02:
                    prefixes.clear()
                assert prefixes.stats().nbytes <= prefixes.max_bytes
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    check_account(prefixes)
    stats = prefixes.stats()
    assert stats.hits > 300
    assert stats.evictions > 0
    assert stats.pinned == 0
