"""The host's side of the Hopper decode of latents: its shape, its plan and buffers on the GPU, its launch."""

import math
from dataclasses import dataclass
from functools import cache as once

import numpy as np
import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from pagesim.errors import InputError
from pagesim.kernels.general.attend import LOG2E
from pagesim.kernels.general.split import num_sms
from pagesim.kernels.hopper import mla_merge
from pagesim.kernels.hopper import plan as p
from pagesim.kernels.hopper.mla import decode as decode_kernel
from pagesim.kernels.hopper.mla_producer import CHUNK, LATENT, TILE, M
from pagesim.kernels.launch import Kept, launch

NUM_WARPS = 4  # of a consumer
REGISTERS = 168  # of a thread at launch, where the SM is full: a consumer's then takes 232, the producer's 40
CUT_INTS = mla_merge.CUT_INTS.value
NO_POOL = 1 << 30  # two CTAs that walk the same records cannot draw
# Tensor cores set the pace, and each SM has its own: unlike bandwidth, a CTA's time is no other's.
SLACK = 0.04


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for, each value a constexpr, as kernels pass them on.

    Attributes:
        NUM_HEADS: query heads, all of which share the cache.
        Q_LEN: query tokens of each sequence.
        ROWS: their product; ROW_TILES CTAs of 64 rows walk the same records side by side, so that a tile comes from
            memory once and from the L2 for the others.
        Q_BOX: rows that one TMA instruction fetches.
        BLOCK_SIZE: tokens of a block.
        BOX: tokens that one TMA instruction fetches: the most that divide a block and a tile.
    """

    NUM_HEADS: gl.constexpr
    Q_LEN: gl.constexpr
    ROWS: gl.constexpr
    ROW_TILES: gl.constexpr
    Q_BOX: gl.constexpr
    BLOCK_SIZE: gl.constexpr
    BOX: gl.constexpr


@once
def make_shape(q_len: int, num_heads: int, block_size: int) -> Shape:
    rows = q_len * num_heads
    values = {"NUM_HEADS": num_heads, "Q_LEN": q_len, "ROWS": rows, "ROW_TILES": triton.cdiv(rows, M.value),
              "Q_BOX": min(M.value, max(8, triton.next_power_of_2(rows))), "BLOCK_SIZE": block_size,
              "BOX": math.gcd(block_size, TILE.value)}
    return Shape(**{name: gl.constexpr(value) for name, value in values.items()})


class HopperMlaPlan:
    """Plan and partial results of batches of one shape: made once, updated each step, used by all layers.

    Attributes:
        shape: what the kernel is compiled for.
        num_seqs: of each batch.
        kept: what calls compiled.
    """

    kernel = "hopper"

    def __init__(self, shape: Shape, lengths: np.ndarray, num_sms: int, device: torch.device | str):
        self.shape = shape
        self.num_seqs = len(lengths)
        self.num_groups = num_sms // shape.ROW_TILES.value
        slots = p.max_slots(self.num_groups)
        self._max_cuts = min(self.num_seqs, p.max_counters(self.num_groups)) + 1
        max_records = p.max_records(self.num_seqs, self.num_groups)
        ints = torch.empty(self._max_cuts * CUT_INTS + max_records * p.RECORD_INTS, dtype=torch.int32, device=device)
        self._ints, self.cuts = ints, ints[:self._max_cuts * CUT_INTS]
        self.records = ints[self._max_cuts * CUT_INTS:].view(-1, p.RECORD_INTS)
        self.partial = torch.empty((slots, shape.ROWS.value, LATENT.value), dtype=torch.float32, device=device)
        self.log_sum = torch.empty((slots, shape.ROWS.value), dtype=torch.float32, device=device)
        self.kept: dict[tuple, Kept] = {}
        self.update(lengths)

    def update(self, lengths: np.ndarray) -> None:
        """Plan for these visible tokens; launches after it, a replayed graph's too, use the new plan.

        Raises:
            InputError: another number of sequences, or a negative length.
        """
        if len(lengths) != self.num_seqs:
            raise InputError(f"the plan is for {self.num_seqs} sequences, got {len(lengths)} lengths")
        plan = p.make_plan(lengths, self.num_groups, tile_tokens=TILE.value, pool_tiles=NO_POOL, slack=SLACK)
        cuts = _cuts(plan)
        host = np.zeros(self.cuts.numel() + plan.records.size, np.int32)
        host[:cuts.size] = cuts.ravel()
        host[CUT_INTS - 1] = len(cuts)
        host[self.cuts.numel():] = plan.records.ravel()
        # Pageable memory is staged before the call returns, so a second upload cannot overwrite the first in flight.
        self._ints[:len(host)].copy_(torch.from_numpy(host), non_blocking=True)


def _cuts(plan: p.Plan) -> np.ndarray:
    """What the merge needs of each cut row: sequence, first slot, end slot, and a word that is used elsewhere."""
    records = plan.records[(plan.records[:, p.SEQ] >= 0) & (plan.records[:, p.NUM_PARTS] > 1)]
    first = records[np.unique(records[:, p.COUNTER], return_index=True)[1]]
    end = first[:, p.FIRST_SLOT] + first[:, p.NUM_PARTS]
    return np.stack([first[:, p.SEQ], first[:, p.FIRST_SLOT], end, np.zeros_like(end)], 1)


def decode(q: torch.Tensor, cache: torch.Tensor, block_table: torch.Tensor, plan: HopperMlaPlan, *, scale: float,
           out: torch.Tensor) -> None:
    """Launch on the current stream; arguments as for ``mla.decode_mla``."""
    shape = plan.shape
    arguments = (_queries(q, shape), _blocks(cache, shape), block_table, plan.records, plan.partial, plan.log_sum, out,
                 scale * LOG2E.value, block_table.stride(0), shape)
    # Triton compiles for what it sees of pointers; all else that a call can bring is of the plan.
    key = q.dtype, block_table.data_ptr() % 16 == 0, out.data_ptr() % 16 == 0
    kept = plan.kept.setdefault(key, {})
    launch(decode_kernel, plan.num_groups * shape.ROW_TILES.value, arguments, {"num_warps": NUM_WARPS}, kept,
           maxnreg=REGISTERS, launch_pdl=True)
    launch(mla_merge.merge, mla_merge.PROGRAMS_AN_SM * num_sms(q.device),
           (plan.cuts, plan.partial, plan.log_sum, out),
           {"NUM_ROWS": shape.ROWS.value, "DIM": LATENT.value}, kept, num_warps=mla_merge.NUM_WARPS,
           maxnreg=mla_merge.REGISTERS, launch_pdl=True)


def _queries(q: torch.Tensor, shape: Shape) -> TensorDescriptor:
    rows = q.view(-1, q.shape[-1])
    return TensorDescriptor(rows, list(rows.shape), list(rows.stride()), [shape.Q_BOX.value, CHUNK.value],
                            gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2))


def _blocks(cache: torch.Tensor, shape: Shape) -> TensorDescriptor:
    """Boxes of BOX tokens and 64 columns, in a pool of any strides."""
    return TensorDescriptor(cache, list(cache.shape), list(cache.stride()), [1, shape.BOX.value, CHUNK.value],
                            gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3))
