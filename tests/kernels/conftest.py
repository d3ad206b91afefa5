import pytest


@pytest.fixture
def device() -> str:
    """A GPU, or else Triton's interpreter."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'pagesim[kernel]'")
    return "cuda" if torch.cuda.is_available() else "cpu"
