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
    sampled: int = 0
    stored: int = 0
    computed: int = 0                # tokens scheduled in this step
    prefilling: bool = True          # from an admission until it samples
    host_units: int = 0              # blocks or slots that lie in host memory
    blocks: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)   # the step in which each block was taken
    region: Region | None = None

    @property
    def known(self) -> int:
        return self.prompt_tokens + self.sampled

    @property
    def final(self) -> int:
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def key(self) -> tuple[int, int]:
        return self.request, self.sample
