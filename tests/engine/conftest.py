import pytest
from simulators import by_engine, by_oracle


@pytest.fixture(params=(by_oracle, by_engine), ids=("oracle", "engine"))
def play(request):
    """A worked example is a run of both, the definition and the program."""
    return request.param
