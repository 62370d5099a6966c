"""Graphs on disk: whole or not there, this user's or not loaded, seen and cleared."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import filelock
import pytest
import torch

from genscope.kernel_side.tracing import packages
from genscope.kernel_side.tracing.execution import PreparationError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "exported"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    made = tmp_path / "into"
    made.mkdir()
    return made


def put(name: str = "abc", content: bytes = b"a library", **constants: torch.Tensor) -> None:
    with packages.locked(name, lambda: None), packages.scratch(name) as here:
        (here / "graph.pt2").write_bytes(content)
        packages.put(name, "Model: one token", 12.5, here / "graph.pt2", constants)


def test_what_was_put_is_fetched(cache: Path, into: Path) -> None:
    assert packages.fetch("abc", into) is None
    table = torch.arange(6.0).reshape(2, 3)
    put(table=table.t())
    found = packages.fetch("abc", into)
    assert found is not None
    package, constants = found
    assert package.parent == into
    assert package.read_bytes() == b"a library"
    assert torch.equal(constants["table"], table.t())
    assert {path.name for path in cache.iterdir()} == {"abc.pt2", "abc.safetensors", "abc.json", "abc.lock"}


def test_what_was_put_again_replaces_it(into: Path) -> None:
    put(table=torch.ones(2))
    put(content=b"another")
    found = packages.fetch("abc", into)
    assert found is not None
    assert found[0].read_bytes() == b"another"
    assert found[1] == {}


def _flip(cache: Path) -> None:
    content = bytearray((cache / "abc.pt2").read_bytes())
    content[3] ^= 1
    (cache / "abc.pt2").write_bytes(content)


def _cut(cache: Path) -> None:
    (cache / "abc.pt2").write_bytes(b"a lib")


def _constants(cache: Path) -> None:
    (cache / "abc.safetensors").write_bytes(b"")


def _no_manifest(cache: Path) -> None:
    (cache / "abc.json").unlink()


def _half_a_manifest(cache: Path) -> None:
    (cache / "abc.json").write_text((cache / "abc.json").read_text()[:30])


def _another_manifest(cache: Path) -> None:
    (cache / "abc.json").write_text("[]")


def _no_package(cache: Path) -> None:
    (cache / "abc.pt2").unlink()


def _elsewhere(cache: Path) -> None:
    (cache / "abc.pt2").rename(cache.parent / "abc.pt2")
    (cache / "abc.pt2").symlink_to(cache.parent / "abc.pt2")


def _for_all(cache: Path) -> None:
    (cache / "abc.pt2").chmod(0o666)


def _folder_for_all(cache: Path) -> None:
    cache.chmod(0o777)


@pytest.mark.skipif(sys.platform == "win32", reason="files have other rights there")
@pytest.mark.parametrize(
    "damage",
    [
        _flip,
        _cut,
        _constants,
        _no_manifest,
        _half_a_manifest,
        _another_manifest,
        _no_package,
        _elsewhere,
        _for_all,
        _folder_for_all,
    ],
)
def test_what_is_damaged_or_anothers_is_never_given(damage: Callable[[Path], None], cache: Path, into: Path) -> None:
    put(table=torch.ones(2))
    assert packages.fetch("abc", into) is not None
    damage(cache)
    assert packages.fetch("abc", into) is None
    put()
    assert packages.fetch("abc", into) is not None


@pytest.mark.skipif(sys.platform == "win32", reason="files have other owners there")
def test_what_another_user_wrote_is_never_given(into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put()
    own = packages.os.getuid()
    monkeypatch.setattr(packages.os, "getuid", lambda: own + 1)
    assert packages.fetch("abc", into) is None


def test_a_manifest_that_names_other_files_gives_none_of_them(cache: Path, into: Path) -> None:
    put()
    other = cache.parent / "other.pt2"
    other.write_bytes(b"a library")
    says = json.loads((cache / "abc.json").read_text())
    says["files"] = {"../other.pt2": says["files"]["abc.pt2"]}
    (cache / "abc.json").write_text(json.dumps(says))
    assert packages.fetch("abc", into) is None


def test_what_is_kept_can_be_seen_and_cleared(cache: Path, into: Path) -> None:
    assert packages.kept() == []
    assert packages.clear() == 0
    put("abc")
    put("def", b"a larger library", table=torch.ones(2))
    (cache / "def.json").touch()
    one, two = packages.kept()
    assert (one.name, one.what, one.seconds) == ("abc", "Model: one token", 12.5)
    assert datetime.now(UTC) - one.when < timedelta(minutes=5)
    assert two.bytes == sum((cache / f"def.{kind}").stat().st_size for kind in ("pt2", "safetensors", "json"))
    (cache / "abc.left").mkdir()
    assert packages.clear() == one.bytes + two.bytes
    assert packages.kept() == []
    assert {path.suffix for path in cache.iterdir()} == {".lock"}


def test_what_another_one_is_making_is_not_cleared(cache: Path) -> None:
    put("abc")
    put("def")
    with filelock.FileLock(cache / "abc.lock"):
        packages.clear()
    assert [one.name for one in packages.kept()] == ["abc"]


def test_one_at_a_time_and_who_waits_can_leave(cache: Path) -> None:
    cache.mkdir(parents=True)
    waited: list[float] = []

    def waiting() -> None:
        waited.append(time.perf_counter())
        if len(waited) == 2:
            raise KeyError("cancelled")

    with filelock.FileLock(cache / "abc.lock"):
        with pytest.raises(KeyError), packages.locked("abc", waiting):
            raise AssertionError
        with packages.locked("def", waiting):
            pass
    assert len(waited) == 2
    with packages.locked("abc", waiting):
        assert len(waited) == 2


def test_what_a_killed_process_left_is_removed(cache: Path) -> None:
    (cache / "abc.left").mkdir(parents=True)
    (cache / "def.left").mkdir()
    put("abc")
    assert not (cache / "abc.left").exists()
    assert (cache / "def.left").exists()


def test_a_folder_that_cannot_be_written_is_named(cache: Path) -> None:
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(PreparationError, match=r"could not be kept in .*GENSCOPE_CACHE"), packages.locked("a", print):
        pass
