"""Seeded prompts that share: system prompts × documents × questions, and chats of several turns."""

from dataclasses import dataclass

import numpy as np

from pagesim.core.units import ceil_div
from pagesim.errors import InputError
from pagesim.trace.instants import whole_ns
from pagesim.trace.lengths import refuse_unless_positive
from pagesim.trace.numbering import by_appearance
from pagesim.trace.sessions import NONE


@dataclass(frozen=True)
class Texts:
    """A prompt begins with one of the system prompts, then one of the documents; what is drawn for it stands behind.

    Attributes:
        system_prompts, documents: how many there are, each as likely; 0 for none.
        system_tokens, document_tokens: length of each.
    """

    system_prompts: int = 0
    system_tokens: int = 0
    documents: int = 0
    document_tokens: int = 0

    def __post_init__(self) -> None:
        for num, tokens in ((self.system_prompts, self.system_tokens), (self.documents, self.document_tokens)):
            if min(num, tokens) < 0 or (num > 0) != (tokens > 0):
                raise InputError("shared texts need a number and a length, both at least 1, got "
                                 f"{num} of {tokens} tokens")

    @property
    def tokens(self) -> int:
        """What a prompt begins with."""
        return self.system_tokens + self.document_tokens

    def draw(self, rng: np.random.Generator, num: int) -> tuple[np.ndarray, np.ndarray]:
        """System prompt and document of each conversation."""
        return rng.integers(max(self.system_prompts, 1), size=num), rng.integers(max(self.documents, 1), size=num)


@dataclass(frozen=True)
class Chats:
    """Conversations of a geometric number of turns; each turn's prompt is all before it and something new.

    Attributes:
        turns: mean number of turns.
        think_s: mean of the exponential time from the end of a turn to the next.
    """

    turns: float
    think_s: float

    def __post_init__(self) -> None:
        refuse_unless_positive("a chat", turns=self.turns, think_s=self.think_s)
        if self.turns < 1:
            raise InputError(f"a chat has at least one turn, got a mean of {self.turns:g}")

    def draw_turns(self, rng: np.random.Generator, num: int) -> np.ndarray:
        return rng.geometric(1 / self.turns, num)

    def draw_think_ns(self, rng: np.random.Generator, num: int) -> np.ndarray:
        """In whole milliseconds."""
        return whole_ns(np.round(rng.exponential(self.think_s, num), 3))


def grown(new_tokens: np.ndarray, output_tokens: np.ndarray, turns: np.ndarray, shared_tokens: int,
          fits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Requests one behind the other in conversations: prompt tokens, session, and the turn before.

    Args:
        new_tokens: what each request adds to the conversation, shape (num_requests,).
        turns: wanted turns of the first, second, … conversation, at least one for each request.
        shared_tokens: what every conversation begins with.
        fits: whether a prompt and an output are within bounds; a conversation ends before one that is not.
    """
    prompt, session, parent = [], [], []
    history, left = 0, 0
    for row, (new, output) in enumerate(zip(new_tokens.tolist(), output_tokens.tolist())):
        follows = left > 0 and fits(history + new, output)
        if not follows:
            history, left = shared_tokens, int(turns[session[-1] + 1 if session else 0])
        session.append(session[-1] + (not follows) if session else 0)
        parent.append(row - 1 if follows else NONE)
        prompt.append(history + new)
        history, left = history + new + output, left - 1
    return np.array(prompt, dtype=np.int32), np.array(session), np.array(parent)


def block_ids(prompt_tokens: np.ndarray, session: np.ndarray, system: np.ndarray, document: np.ndarray, texts: Texts,
              block_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of all prompts' blocks and each prompt's offset; a last block that is not whole has its own id.

    Args:
        session: conversation of each request; the prompts of one begin alike as far as they go.
        system, document: of each conversation.
    """
    num_blocks = ceil_div(prompt_tokens.astype(np.int64), block_tokens)
    offsets = np.concatenate(([0], np.cumsum(num_blocks)))
    owner = np.repeat(np.arange(len(prompt_tokens)), num_blocks)
    block = np.arange(offsets[-1]) - offsets[owner]
    end, chat = (block + 1) * block_tokens, session[owner]
    most = int(num_blocks.max())
    text = np.where(end <= texts.system_tokens, system[chat],
                    texts.system_prompts + system[chat] * max(texts.documents, 1) + document[chat])
    chats_from = texts.system_prompts + max(texts.system_prompts, 1) * max(texts.documents, 1)
    text = np.where(end <= texts.tokens, text, chats_from + chat)
    alone = (chats_from + int(session.max()) + 1) * most + np.arange(offsets[-1])
    return by_appearance(np.where(end <= prompt_tokens[owner], text * most + block, alone)), offsets
