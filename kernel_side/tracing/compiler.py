"""Whether this machine has what inductor compiles with, and what to install where it has not.

Asked before anything is compiled: inductor itself finds out minutes later, in words that help nobody. The compiler is
the one that inductor would take (torch 2.13; ``CXX`` chooses another). Not here: what is compiled.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from .execution import PreparationError

__all__ = ["require_compiler"]

_COMPILER = {
    "linux": "on Debian and Ubuntu `sudo apt install g++`, with conda `conda install cxx-compiler`",
    "darwin": "`xcode-select --install`",
    "win32": "Visual Studio Build Tools with C++, then start Jupyter from their developer prompt",
}
_HEADERS = {
    "linux": "on Debian and Ubuntu `sudo apt install python3-dev`",
    "darwin": "a Python from python.org, Homebrew or conda",
    "win32": "a Python from python.org",
}


def require_compiler(*, headers: bool = True) -> str:
    """Return the C++ compiler that inductor takes.

    Parameters
    ----------
    headers : bool
        Whether what is compiled becomes a module of Python, which needs Python's headers, as ``torch.compile`` does.

    Returns
    -------
    str
        Its name or path.

    Raises
    ------
    PreparationError
        Where there is none, or no headers; it says what to install.
    """
    try:
        compiler: str = cpp_builder.get_cpp_compiler()
    except InvalidCxxCompiler:
        compiler = ""
    except RuntimeError as error:  # one that it cannot work with, such as MSVC in another language
        raise PreparationError(str(error)) from error
    # Inductor looks only once in a process; the compiler may have gone since.
    if not shutil.which(compiler):
        raise PreparationError(f"there is no C++ compiler; install {_for_here(_COMPILER)}, or point CXX to one")
    if headers and not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise PreparationError(f"Python's headers (Python.h) are missing; install {_for_here(_HEADERS)}")
    return compiler


def _for_here(advice: dict[str, str]) -> str:
    return advice.get(sys.platform, advice["linux"])
