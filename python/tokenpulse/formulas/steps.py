"""How long a prompt and a step take on a machine: the arithmetic of a server before anything is measured.

Each is an estimate from first principles: work over speed. What it leaves out (kernels that start, skew between GPUs)
is in the efficiency that is given. Times are in seconds, work in floating-point operations (FLOP), memory in bytes.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from tokenpulse.formulas.domain import ABOVE_0, AT_LEAST_0, AT_LEAST_1, EFFICIENCY, Array, Number, formula


@overload
def prefill_seconds(parameters: Number, prompt_tokens: Number, flops_per_second: Number, mfu: Number) -> float: ...
@overload
def prefill_seconds(
    parameters: ArrayLike, prompt_tokens: ArrayLike, flops_per_second: ArrayLike, mfu: ArrayLike
) -> Array: ...
@formula(parameters=ABOVE_0, prompt_tokens=AT_LEAST_0, flops_per_second=ABOVE_0, mfu=EFFICIENCY)
def prefill_seconds(parameters: Any, prompt_tokens: Any, flops_per_second: Any, mfu: Any) -> Any:
    """The seconds that a prompt's computation takes: 2·P·T_in / (FLOPS·MFU).

    A forward pass multiplies and adds once with each parameter for each token: 2 FLOP (Kaplan et al., 2020, section
    2.1). Attention's own part, which grows with the square of the prompt, is left out: for 70B it is under 10 % up to
    some 10,000 tokens.

    `parameters` P: those that a token passes through (of a mixture of experts the active ones), above 0.
    `prompt_tokens` T_in: computed, not cached; 0 or more. `flops_per_second` FLOPS: the peak of all GPUs at this
    precision, above 0. `mfu` MFU: the share of the peak that is reached, above 0, at most 1.

    70B in FP8 on 8 H100 (1,979 TFLOP/s each, dense) at half of the peak, and 8B in BF16 on one (989 TFLOP/s):

    >>> round(prefill_seconds(70e9, 2048, 8 * 1.979e15, 0.5), 4)
    0.0362
    >>> prefill_seconds(8e9, [512, 2048, 8192], 0.989e15, 0.5).round(4).tolist()
    [0.0166, 0.0663, 0.2651]
    """
    return 2 * parameters * prompt_tokens / (flops_per_second * mfu)


@overload
def prefill_seconds_chunked(
    prompt_tokens: Number, chunk_tokens: Number, chunk_seconds: Number, interleave_seconds: Number
) -> float: ...
@overload
def prefill_seconds_chunked(
    prompt_tokens: ArrayLike, chunk_tokens: ArrayLike, chunk_seconds: ArrayLike, interleave_seconds: ArrayLike
) -> Array: ...
@formula(prompt_tokens=AT_LEAST_0, chunk_tokens=AT_LEAST_1, chunk_seconds=AT_LEAST_0, interleave_seconds=AT_LEAST_0)
def prefill_seconds_chunked(prompt_tokens: Any, chunk_tokens: Any, chunk_seconds: Any, interleave_seconds: Any) -> Any:
    """The seconds of a prefill in chunks: ceil(T_in / C)·T_chunk + T_interleave.

    The last chunk takes as long as a whole one (its step is filled with others' work). Source: the schedule of
    Sarathi-Serve (Agrawal et al., 2024).

    `prompt_tokens` T_in: 0 or more. `chunk_tokens` C: 1 or more. `chunk_seconds` T_chunk: a step with a chunk in it.
    `interleave_seconds` T_interleave: what steps without a chunk of this prompt add, over the whole of it.

    A prompt of 5,000 tokens in chunks of 2,048, each 40 ms, with 15 ms of other work between them:

    >>> prefill_seconds_chunked(5000, 2048, 0.040, 0.015)
    0.135
    """
    return -(-prompt_tokens // chunk_tokens) * chunk_seconds + interleave_seconds


@overload
def ttft_seconds(queue_seconds: Number, prefill_seconds: Number, scheduling_seconds: Number = ...) -> float: ...
@overload
def ttft_seconds(
    queue_seconds: ArrayLike, prefill_seconds: ArrayLike, scheduling_seconds: ArrayLike = ...
) -> Array: ...
@formula(queue_seconds=AT_LEAST_0, prefill_seconds=AT_LEAST_0, scheduling_seconds=AT_LEAST_0)
def ttft_seconds(queue_seconds: Any, prefill_seconds: Any, scheduling_seconds: Any = 0.0) -> Any:
    """The seconds to the first token: T_queue + T_prefill + T_scheduling, each 0 or more.

    >>> ttft_seconds(0.125, 0.0625, 0.002)
    0.1895
    """
    return queue_seconds + prefill_seconds + scheduling_seconds


@overload
def tpot_seconds(
    weight_bytes: Number,
    kv_bytes: Number,
    bytes_per_second: Number,
    communication_seconds: Number = ...,
    scheduling_seconds: Number = ...,
) -> float: ...
@overload
def tpot_seconds(
    weight_bytes: ArrayLike,
    kv_bytes: ArrayLike,
    bytes_per_second: ArrayLike,
    communication_seconds: ArrayLike = ...,
    scheduling_seconds: ArrayLike = ...,
) -> Array: ...
@formula(
    weight_bytes=AT_LEAST_0,
    kv_bytes=AT_LEAST_0,
    bytes_per_second=ABOVE_0,
    communication_seconds=AT_LEAST_0,
    scheduling_seconds=AT_LEAST_0,
)
def tpot_seconds(
    weight_bytes: Any,
    kv_bytes: Any,
    bytes_per_second: Any,
    communication_seconds: Any = 0.0,
    scheduling_seconds: Any = 0.0,
) -> Any:
    """The seconds from one output token to the next: (M_weights + M_kv_step) / BW + T_comm + T_scheduling.

    A decode step reads every weight once for the whole batch, and each running request's KV cache; while it is short of
    memory bandwidth, its computation is hidden behind that (see `roofline_seconds`).

    `weight_bytes` M_weights and `kv_bytes` M_kv_step (`kv_step_bytes`): read in a step by all GPUs together, 0 or more.
    `bytes_per_second` BW: the memory bandwidth of all GPUs, above 0. `communication_seconds` T_comm: the all-reduces of
    a step. `scheduling_seconds` T_scheduling: the host's work between steps. Both 0 or more, by default 0.

    70B in FP8 on 8 H100 (3.35 TB/s each) with 64 requests of 1,000 tokens; 8B in BF16 on one, with 1 and with 32:

    >>> kv = kv_step_bytes(64, kv_bytes_per_token(80, 8, 128, 2), 1000)
    >>> round(1e3 * tpot_seconds(70e9, kv, 8 * 3.35e12, communication_seconds=0.002, scheduling_seconds=0.001), 2)
    6.39
    >>> (1e3 * tpot_seconds(16e9, kv_step_bytes([1, 32], 131072, 1000), 3.35e12)).round(2).tolist()
    [4.82, 6.03]
    """
    return (weight_bytes + kv_bytes) / bytes_per_second + communication_seconds + scheduling_seconds


# The KV cache


@overload
def kv_bytes_per_token(layers: Number, kv_heads: Number, head_dim: Number, dtype_bytes: Number) -> float: ...
@overload
def kv_bytes_per_token(
    layers: ArrayLike, kv_heads: ArrayLike, head_dim: ArrayLike, dtype_bytes: ArrayLike
) -> Array: ...
@formula(layers=ABOVE_0, kv_heads=ABOVE_0, head_dim=ABOVE_0, dtype_bytes=ABOVE_0)
def kv_bytes_per_token(layers: Any, kv_heads: Any, head_dim: Any, dtype_bytes: Any) -> Any:
    """The bytes that a token has in the KV cache: 2·layers·kv_heads·head_dim·dtype_bytes, a key and a value each.

    For multi-head and grouped-query attention. `layers` L, `kv_heads` H_kv (not those of the queries), `head_dim` d:
    numbers above 0. `dtype_bytes` b: 2 for BF16, 1 for FP8, 0.5 for 4 bits.

    Llama 3.1 70B and 8B in BF16, and the former with the cache in FP8:

    >>> kv_bytes_per_token([80, 32, 80], 8, 128, [2, 2, 1]).tolist()
    [327680.0, 131072.0, 163840.0]
    """
    return 2 * layers * kv_heads * head_dim * dtype_bytes


@overload
def kv_step_bytes(active_requests: Number, bytes_per_token: Number, mean_cached_tokens: Number) -> float: ...
@overload
def kv_step_bytes(active_requests: ArrayLike, bytes_per_token: ArrayLike, mean_cached_tokens: ArrayLike) -> Array: ...
@formula(active_requests=AT_LEAST_0, bytes_per_token=ABOVE_0, mean_cached_tokens=AT_LEAST_0)
def kv_step_bytes(active_requests: Any, bytes_per_token: Any, mean_cached_tokens: Any) -> Any:
    """The bytes of KV cache that a decode step reads: B_active·m_token·T_avg_cache.

    `active_requests` B_active: requests that decode in the step, 0 or more. `bytes_per_token` m_token: as of
    `kv_bytes_per_token`, above 0. `mean_cached_tokens` T_avg_cache: tokens that a request has in the cache on average,
    0 or more.

    64 requests of 1,000 tokens each on Llama 3.1 70B, in GB:

    >>> kv_step_bytes(64, 327680, 1000) / 1e9
    20.97152
    """
    return active_requests * bytes_per_token * mean_cached_tokens


@overload
def batch_max(kv_budget_bytes: Number, bytes_per_token: Number, mean_cached_tokens: Number) -> float: ...
@overload
def batch_max(kv_budget_bytes: ArrayLike, bytes_per_token: ArrayLike, mean_cached_tokens: ArrayLike) -> Array: ...
@formula(kv_budget_bytes=AT_LEAST_0, bytes_per_token=ABOVE_0, mean_cached_tokens=ABOVE_0)
def batch_max(kv_budget_bytes: Any, bytes_per_token: Any, mean_cached_tokens: Any) -> Any:
    """How many requests the KV cache has room for, B_max: M_kv_budget / (m_token·T_avg_cache).

    Not rounded: the whole requests are `math.floor` of it. `kv_budget_bytes` M_kv_budget: memory left for the cache
    beside weights and activations, of all GPUs, 0 or more. `bytes_per_token` m_token and `mean_cached_tokens`
    T_avg_cache: as for `kv_step_bytes`, both above 0.

    8 H100 of 80 GB, 90 % of it in use, 70 GB of weights in FP8, 4 GB a GPU for activations; requests of 4,000 tokens:

    >>> round(batch_max(8 * 80e9 * 0.9 - 70e9 - 8 * 4e9, 327680, 4000), 1)
    361.6
    """
    return kv_budget_bytes / (bytes_per_token * mean_cached_tokens)


# The roofline


@overload
def arithmetic_intensity(flops: Number, bytes_moved: Number) -> float: ...
@overload
def arithmetic_intensity(flops: ArrayLike, bytes_moved: ArrayLike) -> Array: ...
@formula(flops=AT_LEAST_0, bytes_moved=ABOVE_0)
def arithmetic_intensity(flops: Any, bytes_moved: Any) -> Any:
    """Floating-point operations per byte moved, AI: flops / bytes. Below peak / bandwidth, memory is what limits.

    `flops` 0 or more; `bytes_moved` above 0. A decode step of 70B in FP8 (2 FLOP per parameter and request, a byte per
    parameter) with 1, 64 and 512 requests; the ridge of an H100 is at 1,979 / 3.35 = 591 FLOP per byte:

    >>> arithmetic_intensity([2 * 70e9 * batch for batch in (1, 64, 512)], 70e9).tolist()
    [2.0, 128.0, 1024.0]
    """
    return flops / bytes_moved


@overload
def roofline_seconds(
    flops: Number, peak_flops_per_second: Number, bytes_moved: Number, bytes_per_second: Number
) -> float: ...
@overload
def roofline_seconds(
    flops: ArrayLike, peak_flops_per_second: ArrayLike, bytes_moved: ArrayLike, bytes_per_second: ArrayLike
) -> Array: ...
@formula(flops=AT_LEAST_0, peak_flops_per_second=ABOVE_0, bytes_moved=AT_LEAST_0, bytes_per_second=ABOVE_0)
def roofline_seconds(flops: Any, peak_flops_per_second: Any, bytes_moved: Any, bytes_per_second: Any) -> Any:
    """The least seconds that work can take: max(flops / peak, bytes / bandwidth) (Williams et al., 2009).

    `flops` and `bytes_moved`: the work, 0 or more. `peak_flops_per_second` (times what share of it is reached) and
    `bytes_per_second` of memory: above 0.

    Decode steps of 70B in FP8 on 8 H100 with 1, 64 and 1,024 requests, in ms; the KV cache left out. The first two are
    bound by memory:

    >>> steps = roofline_seconds([2 * 70e9 * batch for batch in (1, 64, 1024)], 8 * 1.979e15, 70e9, 8 * 3.35e12)
    >>> (1e3 * steps).round(2).tolist()
    [2.61, 2.61, 9.06]
    """
    compute, memory = flops / peak_flops_per_second, bytes_moved / bytes_per_second
    return np.maximum(compute, memory) if isinstance(compute, np.ndarray) else max(compute, memory)
