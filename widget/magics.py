"""The notebook extension: ``%load_ext genscope.widget`` gives ``%%generate``. The cell is the prompt.

Its options are in ``options``; what is wrong is said in one line, as IPython's usage errors are, without a traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from ..kernel_side.request import SettingsError, make_settings
from .options import OptionError, explain, help_text, parse

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .scope import Scope

__all__ = ["GenerateMagics", "load_ipython_extension"]

_NO_MODEL = "Say which model: --model demo, --model VARIABLE (a scope or a model), or a hub id, folder or GGUF file."


@magics_class
class GenerateMagics(Magics):
    """``%%generate``, and ``%generate --help``."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._variables = shell.user_ns
        self._used: Scope | None = None
        self._by_name: dict[str, Scope] = {}

    @line_cell_magic
    def generate(self, line: str, cell: str | None = None) -> None:
        """Generate from the cell's text, and show each token in a scope; see ``%generate --help``."""
        try:
            namespace, settings = parse(line)
            if namespace.help:
                print(help_text())  # noqa: T201 - what a magic prints
            else:
                self._generate(namespace, settings, cell)
        except SettingsError as error:
            raise UsageError(explain(error.problems)) from None
        except OptionError as error:
            raise UsageError(str(error)) from None

    def _generate(self, namespace: Any, settings: dict[str, Any], cell: str | None) -> None:
        from IPython.display import display

        if cell is None:
            raise OptionError("The cell is the prompt: write %%generate, and the prompt below it.")
        if not namespace.into.isidentifier():
            raise OptionError(f"--into: {namespace.into!r} cannot be the name of a variable. Use letters and digits.")
        make_settings(**settings)  # before a model is asked for
        text = cell.removesuffix("\n")
        prompt = [{"role": "user", "content": text}] if namespace.chat else text
        model = getattr(namespace, "model", None)
        options = settings | {"prompt": prompt}
        if hasattr(namespace, "assistant"):
            options["assistant"] = self._variables.get(namespace.assistant, namespace.assistant)
        scope = self._scope(model, getattr(namespace, "tokenizer", None), options)
        display(scope)  # type: ignore[no-untyped-call]
        try:
            run = scope.generate()
        except SettingsError:
            raise
        except Exception as error:
            raise UsageError(f"The model could not be loaded: {error}") from error
        finally:
            if scope.run is not None:
                self._used = scope
                if model is not None:
                    self._by_name[model] = scope
        self._variables[namespace.into] = run
        if namespace.wait:
            try:
                scope.wait()
            except Exception as error:
                raise UsageError(f"The run failed: {type(error).__name__}: {error}") from error

    def _scope(self, model: str | None, tokenizer: str | None, options: dict[str, Any]) -> Scope:
        from .scope import Scope

        if model is None:
            if tokenizer is not None:
                raise OptionError("--tokenizer: it belongs to a model. Give --model VARIABLE, too.")
            if "assistant" in options:
                raise OptionError("--assistant: it drafts for a model. Give --model, too.")
            if self._used is None:
                raise OptionError(_NO_MODEL)
            return Scope(self._used, **options)
        if model in self._variables:
            return self._scope_on(model, tokenizer, options)
        try:
            return Scope(model if "assistant" in options else self._by_name.get(model, model), **options)
        except TypeError as error:
            raise OptionError(f"--assistant: {error}") from None

    def _scope_on(self, model: str, tokenizer: str | None, options: dict[str, Any]) -> Scope:
        """Make a scope on what a variable holds."""
        from .scope import Scope

        value = self._variables[model]
        if tokenizer is None and hasattr(value, "generate") and not isinstance(value, Scope):
            raise OptionError(f"--model: the model in {model!r} needs its tokenizer. Give --tokenizer VARIABLE, too.")
        if tokenizer is not None and tokenizer not in self._variables:
            raise OptionError(f"--tokenizer: there is no variable {tokenizer!r}. Name the variable of the tokenizer.")
        try:
            return Scope(value, self._variables.get(tokenizer), **options)
        except TypeError as error:
            raise OptionError(f"--model: {error}") from None


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%generate``: what ``%load_ext genscope.widget`` calls."""
    shell.register_magics(GenerateMagics)
