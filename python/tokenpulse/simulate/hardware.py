"""What a step takes: a model on GPUs, by the roofline.

A step computes some tokens, reads all weights once and the KV cache of the requests in it. It lasts as long as the
slower of the two, and then the GPUs' exchange of activations and the host's work between two steps.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from tokenpulse.formulas import kv_bytes_per_token, kv_step_bytes, prefill_seconds, tpot_seconds

DTYPE_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5}
ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder with grouped-query attention."""

    name: str
    parameters: float
    layers: int
    hidden: int
    kv_heads: int
    head_dim: int
    dtype: str = "bf16"
    """Of the weights: bf16, fp8 or int4."""
    kv_dtype: str = "bf16"
    active_parameters: float | None = None
    """Those that one token passes through: of a mixture of experts fewer than all."""

    @property
    def weight_bytes(self) -> float:
        return self.parameters * DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes_per_token(self) -> float:
        return kv_bytes_per_token(self.layers, self.kv_heads, self.head_dim, DTYPE_BYTES[self.kv_dtype])

    @property
    def computing(self) -> float:
        """Parameters that a token is multiplied with."""
        return self.active_parameters or self.parameters


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU: peaks of dense arithmetic in FLOP/s, memory in bytes and bytes/s, its link in bytes/s each way."""

    name: str
    bf16_flops: float
    memory_bytes: float
    bandwidth: float
    link_bandwidth: float
    fp8_flops: float | None = None

    def flops(self, dtype: str) -> float:
        """The peak at this precision of weights; what the GPU cannot multiply as it is, it multiplies as BF16."""
        return self.fp8_flops if dtype == "fp8" and self.fp8_flops is not None else self.bf16_flops


class StepCost(NamedTuple):
    """What a step takes: all GPUs together; times in seconds."""

    flops: float
    bytes_moved: float
    compute: float
    memory: float
    communication: float
    seconds: float


@dataclass(slots=True)
class Machine:
    """A model on `gpus` GPUs that share each of its layers (tensor parallelism)."""

    model: Model
    gpu: GPU
    gpus: int = 1
    mfu: float = 0.5
    """The share of the peak that arithmetic reaches."""
    memory_share: float = 0.9
    """The share of the memory that may be used."""
    workspace_bytes: float = 4e9
    """Memory of each GPU for activations and the rest."""
    hop_seconds: float = 3e-6
    """What an all-reduce takes beside the bytes it moves."""
    overhead_seconds: float = 0.0005
    """The host's work between two steps, during which the GPUs wait."""

    # A step's cost is linear in its tokens: what one token takes is asked of the formulas once.
    _flops_per_token: float = field(init=False, repr=False)
    _compute_per_token: float = field(init=False, repr=False)
    _weight_bytes: float = field(init=False, repr=False)
    _memory_of_weights: float = field(init=False, repr=False)
    _cached_bytes: float = field(init=False, repr=False)
    _memory_per_cached: float = field(init=False, repr=False)
    _hops: float = field(init=False, repr=False)
    _hops_per_token: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.gpus, int) or self.gpus < 1:
            raise ValueError(f"gpus must be a whole number, 1 or more, got {self.gpus!r}")
        model = self.model
        self._flops_per_token = 2 * model.computing
        self._compute_per_token = prefill_seconds(model.computing, 1, self.peak_flops, self.mfu)
        self._weight_bytes = model.weight_bytes
        self._memory_of_weights = tpot_seconds(model.weight_bytes, 0, self.bandwidth)
        self._cached_bytes = model.kv_bytes_per_token
        self._memory_per_cached = tpot_seconds(0, kv_step_bytes(1, model.kv_bytes_per_token, 1), self.bandwidth)
        # Two all-reduces a layer; the switch adds up (NVLink SHARP), so that each GPU sends its activations once.
        all_reduces = 2 * model.layers if self.gpus > 1 else 0
        sent = model.hidden * ACTIVATION_BYTES
        self._hops = all_reduces * self.hop_seconds
        self._hops_per_token = all_reduces * sent / self.gpu.link_bandwidth

    @property
    def peak_flops(self) -> float:
        """FLOP/s of all GPUs, at the precision of the weights."""
        return self.gpus * self.gpu.flops(self.model.dtype)

    @property
    def bandwidth(self) -> float:
        """Bytes/s of all GPUs' memory."""
        return self.gpus * self.gpu.bandwidth

    def kv_blocks(self, block_tokens: int) -> int:
        """How many blocks of KV cache the memory has room for. ValueError where there is none at all."""
        if block_tokens < 1:
            raise ValueError(f"block_tokens must be 1 or more, got {block_tokens}")
        usable = self.gpus * (self.gpu.memory_bytes * self.memory_share - self.workspace_bytes)
        blocks = math.floor((usable - self.model.weight_bytes) / (self.model.kv_bytes_per_token * block_tokens))
        if blocks < 1:
            raise ValueError(
                f"{self.model.name} does not fit on {self.gpus} x {self.gpu.name}: its weights are"
                f" {self.model.weight_bytes / 1e9:.4g} GB, and {usable / 1e9:.4g} GB can be used"
            )
        return blocks

    def step(self, tokens: float, cached_tokens: float) -> StepCost:
        """The cost of a step that computes `tokens` tokens and reads the KV cache of `cached_tokens`.

        `tokens` counts prompts' tokens, one for each request that decodes, and drafts. A step of none is the host's
        alone. Attention's own arithmetic is left out, as in `formulas.prefill_seconds`.

        >>> machine = known_machine("llama-3.1-70b-fp8", "h100-sxm", 8)
        >>> cost = machine.step(64, 64 * 700)
        >>> [round(1e3 * part, 2) for part in (cost.compute, cost.memory, cost.communication, cost.seconds)]
        [1.14, 3.18, 0.85, 4.53]
        """
        if not tokens:
            return StepCost(0.0, 0.0, 0.0, 0.0, 0.0, self.overhead_seconds)
        compute = tokens * self._compute_per_token
        memory = self._memory_of_weights + cached_tokens * self._memory_per_cached
        communication = self._hops + tokens * self._hops_per_token
        return StepCost(
            tokens * self._flops_per_token,
            self._weight_bytes + cached_tokens * self._cached_bytes,
            compute,
            memory,
            communication,
            max(compute, memory) + communication + self.overhead_seconds,
        )


@cache
def _catalog() -> dict[str, Any]:
    return tomllib.loads(files("tokenpulse.simulate").joinpath("catalog.toml").read_text("utf-8"))


def known_models() -> list[str]:
    """The models of the catalog."""
    return list(_catalog()["model"])


def known_gpus() -> list[str]:
    """The GPUs of the catalog."""
    return list(_catalog()["gpu"])


def known_model(name: str) -> Model:
    """A model of the catalog. ValueError for a name that it does not have.

    >>> known_model("llama-3.1-8b").layers
    32
    """
    return Model(name=name, **_known("model", name))


def known_gpu(name: str) -> GPU:
    """A GPU of the catalog. ValueError for a name that it does not have."""
    return GPU(name=name, **_known("gpu", name))


def known_machine(model: str | Model, gpu: str | GPU, gpus: int = 1, **further: float) -> Machine:
    """A machine of parts that are given or known by name; `further` are fields of `Machine`."""
    return Machine(
        known_model(model) if isinstance(model, str) else model,
        known_gpu(gpu) if isinstance(gpu, str) else gpu,
        gpus,
        **further,
    )


def _known(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = _catalog()[kind].get(name)
    if found is None:
        raise ValueError(f"{kind} must be one of {', '.join(_catalog()[kind])}; got {name!r}")
    return found
