"""One stream of tokens and the memory it owns."""

from dataclasses import dataclass, field


@dataclass
class Region:
    start: int
    asked: int         # slots asked for
    allocated: int     # slots taken: asked, or with buddy the next power of two


@dataclass(eq=False)
class Sequence:
    request: int
    sample: int
    prompt_tokens: int
    output_tokens: int
    limit_tokens: int = 0            # the request's max_tokens, 0 without one
    beams: bool = False              # its group searches with beams
    tokens: list[str] = field(default_factory=list)  # the names of all it knows
    stored: int = 0
    computed: int = 0                # tokens scheduled in this step
    hit: int = 0                     # tokens found in a prefix cache at its latest admission
    prefilling: bool = True          # from an admission until it samples
    host_units: int = 0              # blocks or slots of its group that lie in host memory, noted at its first sample
    host_blocks: list[int] = field(default_factory=list)   # its table there; equal ids are one block
    blocks: list[int] = field(default_factory=list)
    region: Region | None = None
    group: list["Sequence"] = field(default_factory=list)  # those that are scheduled and preempted together, itself too

    @property
    def known(self) -> int:
        return len(self.tokens)

    @property
    def sampled(self) -> int:
        return self.known - self.prompt_tokens

    @property
    def final(self) -> int:
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def key(self) -> tuple[int, int]:
        return self.request, self.sample
