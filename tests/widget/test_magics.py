"""%%generate: options from the schema, help, errors in one line, the run in a variable."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from genscope.kernel_side.request import settings_schema
from genscope.widget import Scope
from genscope.widget.options import OptionError, help_text, parse
from tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "genscope.widget")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def variables(shell):
    # A new extension, which has used no model yet.
    shell.run_line_magic("reload_ext", "genscope.widget")
    shell.user_ns.update(model=tiny_model("llama"), tokenizer=tiny_tokenizer())
    for name in ("run", "other"):
        shell.user_ns.pop(name, None)
    return shell.user_ns


def generate(shell, line, cell="the cat\n"):
    shell.run_cell_magic("generate", line, cell)


MODEL = "--model model --tokenizer tokenizer"


def test_the_run_has_the_prompt_and_the_settings_and_is_in_the_variable(shell, variables):
    line = (
        r"--strategy sample --temperature 0.7 --top-k 20 --max-new-tokens 5 --seed 1 --no-stop-at-eos --wait "
        r'--stop-strings "\n\n" "a b" --alternatives 3 --prompt-probabilities --keep scores logits'
    )
    generate(shell, f"{MODEL} {line}", "Once upon\na time\n")
    run = variables["run"]
    assert run.over
    assert run.request.prompt == "Once upon\na time"
    settings = run.settings.model_dump()
    assert settings | {"strategy": "sample", "temperature": 0.7, "top_k": 20, "max_new_tokens": 5, "seed": 1,
                       "stop_at_eos": False, "stop_strings": ["\n\n", "a b"], "alternatives": 3,
                       "prompt_probabilities": True, "keep": ["scores", "logits"]} == settings  # fmt: skip


def test_the_run_goes_into_the_named_variable_and_the_model_is_remembered(shell, variables):
    generate(shell, f"{MODEL} --max-new-tokens 3 --wait")
    generate(shell, "--into other --max-new-tokens 4 --wait")
    assert variables["run"].status().generated == 3
    assert variables["other"].status().generated == 4


def test_a_scope_may_stand_for_its_model(shell, variables):
    variables["scope"] = Scope(variables["model"], variables["tokenizer"])
    generate(shell, "--model scope --max-new-tokens 2 --wait")
    assert variables["run"].status().generated == 2
    assert variables["scope"].runs == []


def test_without_wait_it_returns_while_the_run_goes_on(shell, variables):
    generate(shell, f"{MODEL} --max-new-tokens 300 --no-stop-at-eos")
    run = variables["run"]
    assert not run.over
    run.stop()
    run.wait(10)


def test_the_scope_is_displayed(shell, variables, monkeypatch):
    shown = []

    def display(self):
        shown.append(self)

    monkeypatch.setattr(Scope, "_ipython_display_", display)
    generate(shell, f"{MODEL} --max-new-tokens 2 --wait")
    assert [scope.run for scope in shown] == [variables["run"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--temprature 1", "There is no option --temprature. Did you mean --temperature?"),
        ("hello", "There is no option hello. The cell is the prompt"),
        ("--strategy sample --temperature 0", "--temperature: '0' is not allowed"),
        ("--strategy sample --temperature 0", "choose the strategy 'greedy'"),
        ("--temperature 1", "--temperature: the strategy 'greedy' has no setting of this name"),
        ("--max-new-tokens many", "--max-new-tokens: 'many' is not allowed"),
        ("--max-new-tokens", "--max-new-tokens: expected one argument"),
        ("--strategy nucleus", "--strategy: 'nucleus' is not a strategy. Choose one of 'greedy', 'sample', 'beam'"),
        ("--strategy dola --dola-layers middle", "--dola-layers: 'middle' is not allowed"),
        (
            "--strategy beam --num-return-sequences 9",
            "--num-return-sequences: 9 sequences are more than there are beams",
        ),
        (f"{MODEL} --strategy assisted", "draft model"),
        (f"{MODEL} --assistant tokenizer", "--model: the assistant cannot be "),
        ("--assistant model", "--assistant: it drafts for a model"),
        ("--into 3x", "--into: '3x' cannot be the name of a variable"),
        ("--stop-strings 'a", "A quote is not closed"),
        ("--max-new-tokens 3", "Say which model: --model demo"),
        ("--tokenizer tokenizer", "--tokenizer: it belongs to a model"),
        ("--model model", "--model: the model in 'model' needs its tokenizer. Give --tokenizer VARIABLE, too."),
        ("--model model --tokenizer nothing", "--tokenizer: there is no variable 'nothing'"),
        ("--model tokenizer", "--model: a scope cannot look into a "),
        ("--model ./nowhere/", "The model could not be loaded"),
        (f"{MODEL} --max-new-tokens 600", "--max-new-tokens: 600 do not fit"),
        (f"{MODEL} --chat", "no chat template"),
    ],
)
def test_errors_name_the_option_and_the_way_out(shell, variables, line, message):
    with pytest.raises(UsageError) as caught:
        generate(shell, line)
    assert message in str(caught.value)
    assert "run" not in variables


def test_an_empty_cell_says_that_the_prompt_is_missing(shell, variables):
    with pytest.raises(UsageError, match="prompt: the prompt is empty"):
        generate(shell, MODEL, "\n")


def test_an_error_is_one_line_without_a_traceback(shell, variables, capsys):
    result = shell.run_cell("%%generate --temprature 1\nhi\n")
    assert not result.success
    output = "".join(capsys.readouterr())
    assert "UsageError: There is no option --temprature." in output
    assert "Traceback" not in output


def test_a_failed_run_is_told_by_wait_and_kept(shell, variables, monkeypatch):
    from genscope.kernel_side.record.recorder import Recorder

    def fail(self, output):
        raise RuntimeError("boom")

    monkeypatch.setattr(Recorder, "put", fail)
    with pytest.raises(UsageError, match="The run failed: RuntimeError: boom"):
        generate(shell, f"{MODEL} --wait")
    assert variables["run"].state == "failed"


def test_help_names_every_setting_with_its_range_and_works_as_a_line_magic(shell, variables, capsys):
    shell.run_line_magic("generate", "--help")
    text = capsys.readouterr().out
    assert text.strip() == help_text().strip()
    for definition in settings_schema()["$defs"].values():
        for name, field in definition["properties"].items():
            assert f"--{name.replace('_', '-')}" in text
            if name != "strategy":
                assert " ".join(field["description"].split()) in " ".join(text.split())
    flat = " ".join(text.split())
    assert "--temperature NUMBER Divides the logits" in flat
    assert "(above 0; at most 100; default 1.0)" in flat
    assert "--dola-layers low|high" in flat
    assert "--execution eager|traced|optimised|compiled|exported" in flat
    assert "traced Recorded once as a graph" in flat
    assert "--negative-prompt TEXT What to move away from" in flat
    # Each strategy says what it does, and each setting whose it is.
    assert "prompt_lookup Drafts are copied from the text so far" in flat
    sections = {part.splitlines()[0]: part for part in text.split("\n\n")}
    assert "--repetition-penalty" in sections["For all strategies"]
    assert "--num-beams" in sections["For beam, beam_sample, diverse_beam"]
    [sampling] = [part for title, part in sections.items() if "--temperature" in part]
    assert sampling.startswith(
        "For sample, beam_sample; dola, guidance, assisted, prompt_lookup, early_exit with --do-sample"
    )
    assert max(map(len, text.splitlines())) <= 100
    assert "--stop-at-eos, --no-stop-at-eos" in flat
    assert "(of scores, logits, hidden_states, attentions)" in flat
    assert "run" not in variables


def test_the_line_magic_says_how_it_is_meant(shell, variables):
    with pytest.raises(UsageError, match="write %%generate, and the prompt below it"):
        shell.run_line_magic("generate", "--max-new-tokens 3")


def test_what_is_not_given_is_left_to_the_schema():
    namespace, settings = parse("--top-p 0.5")
    assert settings == {"top_p": "0.5"}
    assert (namespace.into, namespace.wait, namespace.chat) == ("run", False, False)


def test_texts_are_written_as_in_python_and_switches_as_switches():
    _, settings = parse(r"--strategy guidance --negative-prompt 'a\nb \\n' --do-sample --guidance-scale 2")
    assert settings == {
        "strategy": "guidance", "negative_prompt": "a\nb \\n", "do_sample": True, "guidance_scale": "2",
    }  # fmt: skip


def test_a_setting_means_the_same_in_every_strategy():
    """There is one option, with one help text, for all of them."""
    seen = {}
    for definition in settings_schema()["$defs"].values():
        for name, field in definition["properties"].items():
            if name != "strategy":
                assert seen.setdefault(name, field) == field


def test_options_are_never_abbreviated():
    with pytest.raises(OptionError, match="no option --temp"):
        parse("--temp 1")
