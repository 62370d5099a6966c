import shutil
import sys
import sysconfig

import pytest
from torch._inductor import cpp_builder

from genscope.kernel_side.tracing.compiler import require_compiler
from genscope.kernel_side.tracing.execution import PreparationError


def test_names_the_compiler_that_inductor_takes():
    compiler = require_compiler()
    assert compiler == cpp_builder.get_cpp_compiler()
    assert shutil.which(compiler)


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    """No compiler where anybody looks."""
    monkeypatch.setenv("PATH", str(tmp_path))
    cpp_builder.cpp_compiler_search.cache_clear()
    yield
    cpp_builder.cpp_compiler_search.cache_clear()


@pytest.mark.parametrize(
    ("platform", "advice"),
    [
        ("linux", ["sudo apt install g++", "conda install cxx-compiler"]),
        ("darwin", ["xcode-select --install"]),
        ("win32", ["Visual Studio Build Tools"]),
        ("freebsd14", ["g++"]),
    ],
)
def test_says_what_to_install_where_there_is_none(nothing_installed, monkeypatch, platform, advice):
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(PreparationError, match=r"^there is no C\+\+ compiler; install ") as error:
        require_compiler()
    assert all(word in str(error.value) for word in advice)


def test_a_compiler_that_went_after_inductor_had_found_it_is_missed(monkeypatch, tmp_path):
    require_compiler()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreparationError, match="no C"):
        require_compiler()


def test_a_compiler_that_inductor_cannot_work_with_is_refused_in_its_words(monkeypatch):
    def other():
        raise RuntimeError("MSVC with English language pack")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", other)
    with pytest.raises(PreparationError, match=r"^MSVC with English language pack$"):
        require_compiler()


def test_missing_headers_of_python_are_named_where_they_are_needed(monkeypatch, tmp_path):
    real = sysconfig.get_path
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path) if name == "include" else real(name))
    with pytest.raises(PreparationError, match="sudo apt install python3-dev"):
        require_compiler()
    assert require_compiler(headers=False)
