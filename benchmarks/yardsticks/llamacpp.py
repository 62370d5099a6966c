"""llama.cpp (PyPI ``xllamacpp``) on the demo model in float32, as a yardstick from outside. Used by ``tracing.py``.

The weights are those of the demo model: its GGUF file, each tensor unpacked as transformers unpacks it, written as F32.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from genscope.kernel_side.demo_model import gguf_file

__all__ = ["LlamaCpp", "available", "in_float32"]


def available() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


@contextmanager
def in_float32() -> Iterator[Path]:
    """Write the demo model's GGUF file with all tensors in float32, for as long as it is needed."""
    reader = gguf.GGUFReader(gguf_file())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f32.gguf")
        writer = gguf.GGUFWriter(path, "llama")
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
                continue
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, inner)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        for tensor in reader.tensors:
            data = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            writer.add_tensor(tensor.name, data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield path


class LlamaCpp:
    """A server in this process.

    Parameters
    ----------
    path : Path
        GGUF file.
    threads : int
    """

    def __init__(self, path: Path, threads: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel = 2048, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup = True
        params.verbosity = 0
        self._server = xllamacpp.Server(params)

    def per_token(self, ids: list[int], new: int) -> float:
        """Generate greedily; return the seconds a token after the first."""
        asked = {"prompt": ids, "n_predict": new, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
        answer: Any = self._server.handle_completions(asked)
        return float(answer["timings"]["predicted_per_token_ms"]) / 1000
