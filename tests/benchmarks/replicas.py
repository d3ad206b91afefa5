"""The four routing rules side by side: ``python tests/benchmarks/replicas.py``; README has its tables.

Azure's conversations at 64 times their rate, before 64 replicas; Mooncake's at 16 times theirs, before 32: its prompts
share prefixes.  Each replica is Llama-3.1-8B on an H200 with little KV memory, so that memory decides.
"""

import sys
import tempfile
import time
from pathlib import Path

from pagesim import simulate

TRACES = Path("/work/shared/traces")
CONFIG = """\
trace: {{path: {path}, speedup: {speedup}}}
model: llama-3.1-8b
memory: {{kv_memory: {kv_memory}}}
max_model_len: {max_model_len}
durations: {{kind: roofline, gpu: h200}}
allocators: [{{kind: paged, block_size: 16, prefix_cache: vllm}}]
replicas: {{count: {count}}}
sweep: {{replicas.routing: [round_robin, by_session, least_kv_used, longest_cached_prefix]}}
"""
FLEETS = {
    "AzureLLMInferenceTrace_conv.csv": {"speedup": 64, "kv_memory": "2GiB", "max_model_len": 16384, "count": 64},
    "mooncake_conversation_trace.jsonl.gz": {"speedup": 16, "kv_memory": "32GiB", "max_model_len": 131072, "count": 32},
}
def percent(share: float) -> str:
    return f"{100 * share:.1f}"


COLUMNS = {
    "requests a replica": lambda case: "{min:,}–{max:,}".format(**case["fleet"]["imbalance"]["requests"]),
    "block use, CV": lambda case: f"{case['fleet']['together']['block_use_cv']:.2f}",
    "free in all, %": lambda case: percent(case["fleet"]["together"]["free"]),
    "time in which one refuses its head, %": lambda case: percent(case["fleet"]["together"]["blocked_by_fragmentation"]),
    "waiting, most / mean": lambda case: f"{case['fleet']['imbalance']['waiting']['max_over_mean']:.1f}",
    "preemptions": lambda case: f"{case['preemptions']:,}",
    "hits, %": lambda case: percent(case["sharing"]["hit_rate_by_tokens"]),
    "ttft p50, s": lambda case: f"{case['latency']['ttft']['p50']:,.3f}",
    "ttft p99, s": lambda case: f"{case['latency']['ttft']['p99']:,.3f}",
}


def table(name: str, settings: dict) -> None:
    print(f"\n{name}, {settings}\n")
    print("| routing | " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "replicas.yaml"
        config.write_text(CONFIG.format(path=TRACES / name, **settings))
        began_s = time.process_time()
        for case in simulate(config).metrics["cases"]:
            print(f"| `{case['fleet']['routing']}` | " + " | ".join(of(case) for of in COLUMNS.values()) + " |", flush=True)
    print(f"\n{time.process_time() - began_s:.0f} s of CPU")


def main() -> None:
    missing = [name for name in FLEETS if not (TRACES / name).is_file()]
    if missing:
        sys.exit(f"skipped: {TRACES} has no {', '.join(missing)}")
    for name, settings in FLEETS.items():
        table(name, settings)


if __name__ == "__main__":
    main()
