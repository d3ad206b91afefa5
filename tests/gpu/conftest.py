"""These tests compile kernels and run them on a CUDA GPU: ``pytest tests/gpu``."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if "tests/gpu" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU on this machine"))


@pytest.fixture
def hopper(monkeypatch):
    """A Hopper GPU, on which a CTA of small batches too takes as many KV heads as of large ones."""
    from pagesim.kernels import dispatch

    monkeypatch.setattr(dispatch, "FEW_TILES", 0)
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        pytest.skip(f"the Hopper kernel needs compute capability 9.0, this GPU has {capability}")
