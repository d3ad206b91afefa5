"""The lesson on a corrupt table runs in Triton's interpreter, which must be chosen before Triton is imported."""

import os

try:
    import torch
except ImportError:
    pass
else:
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
