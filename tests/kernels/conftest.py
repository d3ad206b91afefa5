"""The kernels run on a GPU, or else in Triton's interpreter, which must be chosen before they are imported."""

import os

import pytest

try:
    import torch
except ImportError:
    HAS_GPU = False
else:
    HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device() -> str:
    return "cuda" if HAS_GPU else "cpu"
