"""The smallest function there is; `examples/hello.json` calls it twice."""

from blockx import function


@function
def hello_world(name: str) -> str:
    """Greet a name."""
    return f"hello {name}"
