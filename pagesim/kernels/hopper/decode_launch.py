"""The host's side of the Hopper decode kernel: its shape, its plan and buffers on the GPU, its launch."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import triton
from triton.compiler import CompiledKernel
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from pagesim.errors import InputError
from pagesim.kernels.cache import Cache, Geometry
from pagesim.kernels.general import shared as general_shared
from pagesim.kernels.general.attend import LOG2E
from pagesim.kernels.general.shared import merge_parts
from pagesim.kernels.hopper import plan as p
from pagesim.kernels.hopper import shared_launch
from pagesim.kernels.hopper.decode import M
from pagesim.kernels.hopper.decode import decode as decode_kernel
from pagesim.kernels.hopper.producers import PANEL, TILE
from pagesim.kernels.launch import addresses
from pagesim.kernels.mask import Mask
from pagesim.kernels.shared_plan import Places
from pagesim.kernels.validate import check_decode


SM_BYTES = 220 * 1024  # of shared memory that rings, and lanes that meet, may take
MIN_SLOTS = 3


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for, each value a constexpr, as kernels pass them on.

    Attributes:
        HEADS: KV heads of a CTA.  Of up to 8 heads at most 4, since what two CTAs on an SM begin and end overlaps; of
            more 8, since a token's heads that lie together are read better together, and where DIM is 256, since the
            registers that two producers would take are wanted.
        SPLITS: warps that share a head: a tile is so many times 16 tokens.
        LANES, WARPS: their product, and as many warps.
        NUM_Q_HEADS: query heads of the model; Q_GROUP of them share a KV head.
        Q_LEN: query tokens of each sequence.
        HEAD_DIM, DIM: columns of a head, and up to a power of two: TMA fills the rest with zeros.
        ROWS_PADDED: Q_LEN · Q_GROUP rounded up to a power of two: rows of a partial result.
        OUT_ROWS: rows that are stored, of 16: where lanes meet at least the 8 that a swizzle repeats after, else all.
        UNITS_A_ROW: units of 32 columns in DIM.
        WINDOW: tokens before its own that a query sees; -1: all.
        BOXES: tiles are fetched as TMA boxes, since blocks hold whole tiles.
        TILES_A_BLOCK: tiles of 16 tokens in a block, where BOXES.
        BLOCK_SIZE: tokens of a block, where not BOXES.
        NUM_SLOTS: tiles of K or V that the ring holds.
        BESIDE_SHARED: the launch before is that of the kernel of shared tokens, and parts are merged in the one after.
    """

    HEADS: gl.constexpr
    SPLITS: gl.constexpr
    LANES: gl.constexpr
    WARPS: gl.constexpr
    NUM_Q_HEADS: gl.constexpr
    Q_GROUP: gl.constexpr
    Q_LEN: gl.constexpr
    HEAD_DIM: gl.constexpr
    DIM: gl.constexpr
    ROWS_PADDED: gl.constexpr
    OUT_ROWS: gl.constexpr
    UNITS_A_ROW: gl.constexpr
    WINDOW: gl.constexpr
    BOXES: gl.constexpr
    TILES_A_BLOCK: gl.constexpr
    BLOCK_SIZE: gl.constexpr
    NUM_SLOTS: gl.constexpr
    BESIDE_SHARED: gl.constexpr

    @property
    def ctas_per_sm(self) -> int:
        """Two CTAs of 4 warps keep as many bytes in flight as one of 8."""
        return 8 // self.WARPS.value

    @property
    def tile_tokens(self) -> int:
        return self.SPLITS.value * TILE.value

    @property
    def pool_tiles(self) -> int:
        """Mean tiles of a CTA from which a plan has a pool: a launch of about 0.4 ms."""
        return 200 * 128 // self.HEAD_DIM.value


def make_shape(q_len: int, num_q_heads: int, num_kv_heads: int, head_dim: int, block_size: int,
               window: int | None = None, *, one_head: bool = False) -> Shape:
    """Of a batch; ``one_head``: a CTA takes one KV head even where there are more."""
    group, dim = num_q_heads // num_kv_heads, max(64, triton.next_power_of_2(head_dim))
    boxes = block_size % TILE.value == 0
    warps = 8 if num_kv_heads % 8 == 0 and (num_kv_heads > 8 or dim > 128) and not one_head else 4
    heads = 1 if one_head else math.gcd(num_kv_heads, warps)
    rows, splits = triton.next_power_of_2(q_len * group), warps // heads
    meeting_bytes = warps * M.value * (dim + 2) * 4 if splits > 1 else 0
    most_slots = (SM_BYTES * warps // 8 - meeting_bytes) // (warps * TILE.value * dim * 2)
    values = {"HEADS": heads, "SPLITS": splits, "LANES": warps, "WARPS": warps, "NUM_Q_HEADS": num_q_heads,
              "Q_GROUP": group, "Q_LEN": q_len, "HEAD_DIM": head_dim, "DIM": dim,
              "ROWS_PADDED": rows, "OUT_ROWS": M.value if splits == 1 else max(8, rows), "UNITS_A_ROW": dim // 32,
              "WINDOW": -1 if window is None else window, "BOXES": boxes,
              "TILES_A_BLOCK": block_size // TILE.value if boxes else 0,
              "BLOCK_SIZE": 0 if boxes else block_size,
              "NUM_SLOTS": min(most_slots, max(MIN_SLOTS, round(3 * 128 / head_dim))), "BESIDE_SHARED": False}
    return Shape(**{name: gl.constexpr(value) for name, value in values.items()})


class PlanBuffer:
    """A plan on the GPU, at addresses that stay: a captured graph reads whatever was uploaded last.

    Holds the counters of the pool and of merges too, so that one copy both brings the plan and clears them.
    """

    def __init__(self, max_rows: int, num_ctas: int, device: torch.device | str, *, shares: bool = False):
        self.num_ctas = num_ctas
        counter_rows = -(-(p.max_counters(num_ctas) + shares * max_rows) // p.RECORD_INTS)
        self.ints = torch.zeros((counter_rows + p.max_records(max_rows, num_ctas), p.RECORD_INTS), dtype=torch.int32,
                                device=device)
        self.counters, self.records = self.ints[:counter_rows], self.ints[counter_rows:]

    def upload(self, plan: p.Plan) -> None:
        """Replace the plan for the launches that follow on this stream.

        Raises:
            InputError: a plan for other CTAs, or of more rows than the buffer was made for.
        """
        if plan.num_ctas != self.num_ctas:
            raise InputError(f"the plan is for {plan.num_ctas} CTAs, its buffer for {self.num_ctas}")
        if len(plan.records) > len(self.records):
            raise InputError(f"the plan has {len(plan.records)} records, its buffer room for {len(self.records)}")
        host = np.concatenate([np.zeros(self.counters.shape, np.int32), plan.records])
        # Pageable memory is staged before the call returns, so a second upload cannot overwrite the first in flight.
        self.ints[:len(host)].copy_(torch.from_numpy(host), non_blocking=True)


class HopperPlan:
    """Plan, counters and partial results of batches of one shape: made once, updated each step, used by all layers.

    Attributes:
        shape: what the kernel is compiled for.
        num_seqs: of each batch.
        shared: what the sequences of a batch share; None where it is not looked for.
        launches: what calls have in common, by the pool and the shapes; holds on to the pools that it was used with.
    """

    kernel = "hopper"

    def __init__(self, shape: Shape, q: torch.Tensor, cache: Cache, lengths: np.ndarray,
                 block_table: np.ndarray | None, num_sms: int):
        self.shape = shape
        self.num_seqs = len(lengths)
        self.launches: dict[tuple, _Launch] = {}
        heads, rows = shape.HEADS.value, shape.ROWS_PADDED.value
        self._num_sms = num_sms
        self._head_groups = cache.geometry.num_kv_heads // heads
        # Smaller and odd blocks are no boxes: there the general kernel reads what is shared.
        self._shared_kernel = (shared_launch if shape.BOXES.value and shape.HEAD_DIM.value in (64, 128)
                               else general_shared)
        self.shared = None if block_table is None or shape.WINDOW.value >= 0 else self._shared_kernel.make_plan(
            q, cache, Places(heads, self._head_groups, heads * rows, rows, shape.Q_GROUP.value), beside_decode=True)
        self.buffer = PlanBuffer(self.num_seqs * self._head_groups, num_sms * shape.ctas_per_sm, q.device,
                                 shares=self.shared is not None)
        slots = p.max_slots(self.buffer.num_ctas)
        if self.shared:
            slots += self._head_groups * (self.num_seqs + self.shared.max_parts)
        self.partial = torch.empty(slots * heads * rows, shape.HEAD_DIM.value, device=q.device, dtype=torch.float32)
        self.lse = torch.empty(slots * heads * rows, device=q.device, dtype=torch.float32)
        self.update(lengths, block_table)

    def update(self, lengths: np.ndarray, block_table: np.ndarray | None = None) -> None:
        """Plan for these visible tokens, and tables; launches after it, a replayed graph's too, use the new plan.

        Raises:
            InputError: another number of sequences, or a negative length.
        """
        if len(lengths) != self.num_seqs:
            raise InputError(f"the plan is for {self.num_seqs} sequences, got {len(lengths)} lengths")
        found = self.shared.find(block_table, lengths) if self.shared else None
        begin, shared_parts, num_sms = found or (self.first_seen(lengths), None, self._num_sms)
        plan = p.make_plan(lengths, self.buffer.num_ctas, head_groups=self._head_groups,
                           tile_tokens=self.shape.tile_tokens,
                           pool_tiles=self.shape.pool_tiles, begin=begin, shared_parts=shared_parts,
                           used_ctas=num_sms * self.shape.ctas_per_sm)
        self.buffer.upload(plan)
        if self.shared:
            self.shared.upload(plan.first_slots, plan.num_parts)

    def first_seen(self, lengths: np.ndarray) -> np.ndarray | None:
        """The 16 tokens in which a sequence's window begins."""
        if self.shape.WINDOW.value < 0:
            return None
        return np.maximum(lengths - self.shape.Q_LEN.value - self.shape.WINDOW.value, 0) // TILE.value * TILE.value

    def decode(self, q: torch.Tensor, cache: Cache, block_table: torch.Tensor, lengths: torch.Tensor, mask: Mask,
               out: torch.Tensor) -> None:
        """Launch on the current stream; arguments as for ``dispatch.paged_decode``, checked and compiled for once.

        Triton's own launch takes longer than a small batch's kernel: what a plan's calls share is kept with the plan.

        Raises:
            InputError: another number of sequences, a mask or scales that this kernel does not take, or arguments that
                do not fit together.
        """
        window = None if self.shape.WINDOW.value < 0 else self.shape.WINDOW.value
        if self.num_seqs != len(q) or (mask.window, mask.softcap, mask.sinks) != (window, None, None) \
                or cache.scales != (1, 1):
            raise InputError(f"the plan is for {self.num_seqs} sequences, a window of {window}, "
                             "and neither softcap, sinks nor scales")
        if self.shared:
            self.shared.note_capture()
        beside = self.shared is not None and self.shared.launches
        key = (beside, cache.layout, cache.k.data_ptr(), cache.v.data_ptr(),
               (q.data_ptr() | out.data_ptr() | block_table.data_ptr()) % 16,
               *((x.shape, x.stride(), x.dtype, x.device) for x in (q, cache.k, cache.v, block_table, lengths, out)))
        launch = self.launches.get(key)
        if launch is None:
            check_decode(q, cache, block_table, lengths, mask, out)
            shape = replace(self.shape, BESIDE_SHARED=gl.constexpr(beside))
            launch = self.launches[key] = prepare(q, cache, block_table, self, out, shape)
        if beside:
            self._shared_kernel.attend_shared(q, cache, block_table, mask, self.shared, self.partial, self.lse)
        arguments = _arguments(q, launch, block_table, self, out, mask.scale_of(q.shape[-1]))
        launch.kernel[(self.buffer.num_ctas, 1, 1)](*addresses(arguments))
        if beside:
            merge_parts(self.shared, self.partial, self.lse, out)


def descriptor(values: torch.Tensor, g: Geometry, shape: Shape) -> TensorDescriptor:
    """Boxes of 16 tokens and 64 columns of HEADS heads of K or V, with any strides: (block, head, token, column)."""
    swizzled = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    return TensorDescriptor(values, [g.num_blocks, g.num_kv_heads, g.block_size, g.head_dim],
                            [g.block_stride, g.head_stride, g.token_stride, 1],
                            [1, shape.HEADS.value, TILE.value, PANEL.value], swizzled)


@dataclass(frozen=True)
class _Launch:
    """A compiled kernel and the arguments that only depend on the pool."""

    kernel: CompiledKernel | None
    k: TensorDescriptor | torch.Tensor
    v: TensorDescriptor | torch.Tensor
    strides: tuple[int, int, int]
    shape: Shape


def prepare(q: torch.Tensor, cache: Cache, block_table: torch.Tensor, plan: HopperPlan, out: torch.Tensor,
            shape: Shape) -> _Launch:
    """Compile, without running."""
    pool = cache.geometry
    if shape.BOXES.value:
        k, v, strides = descriptor(cache.k, pool, shape), descriptor(cache.v, pool, shape), (0, 0, 0)
    else:
        k, v, strides = cache.k, cache.v, pool[4:]
    # Two CTAs of 4 warps share an SM's registers; one of 8 gets all of them.
    registers = {"maxnreg": 128} if shape.ctas_per_sm > 1 else {}
    launch = _Launch(None, k, v, strides, shape)
    *arguments, num_warps = _arguments(q, launch, block_table, plan, out, 1.0)
    kernel = decode_kernel.run(*arguments, num_warps=num_warps, grid=(plan.buffer.num_ctas,), warmup=True,
                               launch_pdl=True, **registers)
    return replace(launch, kernel=kernel)


def _arguments(q: torch.Tensor, launch: _Launch, block_table: torch.Tensor, plan: HopperPlan, out: torch.Tensor,
               scale: float) -> tuple:
    buffer, shape = plan.buffer, launch.shape
    return (q, launch.k, launch.v, *launch.strides, block_table, buffer.records, buffer.counters, plan.partial,
            plan.lse, out, scale * LOG2E.value, block_table.stride(0), shape, shape.WARPS.value)
