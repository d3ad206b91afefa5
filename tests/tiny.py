"""An experiment of a few requests, written where a test wants it."""

from pathlib import Path

ROWS = ((0.0, 20, 5), (0.1, 7, 9), (0.1, 30, 1), (0.4, 50, 12), (3.0, 16, 4))


def write_experiment(folder: Path, *, rows: tuple = ROWS, columns: str = "arrival_s,prompt_tokens,output_tokens",
                     keys: str = "",
                     allocators: str = "[{kind: contiguous, reserve: max_model_len}, {kind: paged, block_size: 16}]",
                     kv_tokens: int = 160, max_model_len: int = 64) -> Path:
    """Write ``trace.csv`` and ``config.yaml``; ``keys`` are more lines of YAML.  Returns the config's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [columns, *(",".join(map(str, row)) for row in rows)]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    config = folder / "config.yaml"
    config.write_text(f"# A few requests.\ntrace: {{path: trace.csv}}\nmemory: {{kv_tokens: {kv_tokens}}}\n"
                      f"max_model_len: {max_model_len}\n"
                      f"durations: {{kind: fixed, step_s: 0.05}}\nallocators: {allocators}\n{keys}\n")
    return config
