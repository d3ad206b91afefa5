"""What the tokens of a request are called.  Equal names are equal tokens; nothing else is known of them."""


def prompt_names(trace, row: int, history: list[str]) -> list[str]:
    """One name for each prompt token of the row.

    ``history`` are the tokens of the session so far: the prompt begins with them, as far as it reaches.  Behind them a
    token is called by the prefix id that covers it and its place under it; without an id it is equal to no other.
    """
    length = int(trace.prompt_tokens[row])
    names = history[:length]
    for position in range(len(names), length):
        granularity, ids = trace.source.hash_block_tokens, ids_of(trace, row)
        if ids and position // granularity < len(ids):
            names.append(f"id {ids[position // granularity]} token {position % granularity}")
        else:
            names.append(f"request {row} prompt {position}")
    return names


def output_name(request: int, sample: int, index: int) -> str:
    return f"request {request} sample {sample} output {index}"


def ids_of(trace, row: int) -> list[int]:
    if trace.prefix_ids is None:
        return []
    return trace.prefix_ids[trace.prefix_offsets[row]:trace.prefix_offsets[row + 1]].tolist()
