"""Fuzz what reads bytes of others, guided by coverage (atheris, libFuzzer): nothing but our own errors may leave.

    python tools/fuzz.py                        # every target, one minute each
    python tools/fuzz.py --minutes 10 sse chat  # these, ten minutes each

Each target runs in a process of its own. Inputs that were worth keeping stay in `--corpus`, findings in
`--corpus/findings`; `--again FILE TARGET` runs a finding once more. Where atheris is not installed (it has wheels for
few systems; with clang it builds from source) the seeds are mutated blindly, which finds much less; the run says so.
"""

import argparse
import logging
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

__all__ = ["NAMES", "main", "mutated"]

NAMES = (
    *("front", "sse", "chat", "messages", "responses", "chat-stream", "messages-stream", "responses-stream"),
    *("relay", "dialects", "schema", "config", "ledger"),
)
_LONGEST = 4_096


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few changes: some removed, repeated, replaced or moved."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randint(0, len(out)), chance.randint(1, 8)
        match chance.randint(0, 4):
            case 0:
                del out[at : at + size]
            case 1:
                out[at:at] = out[at : at + size * chance.randint(1, 20)]
            case 2:
                out[at : at + 1] = chance.randbytes(1)
            case 3:
                out[at:at] = chance.choice((b"null", b"[]", b"{}", b"-1", b"1e999", b'"', b"\\", b"\xff", b"\n\n"))
            case _:
                other = chance.randint(0, len(out))
                out[at:at] = out[other : other + size * 4]
    return bytes(out[:_LONGEST])


def _blindly(take: Callable[[bytes], None], seeds: Sequence[bytes], seconds: float, findings: Path) -> int:
    chance, until, count = random.Random(1), time.monotonic() + seconds, 0  # noqa: S311  no secret
    while time.monotonic() < until:
        data = mutated(chance.choice(seeds), chance)
        count += 1
        try:
            take(data)
        except Exception:
            (findings / f"blind-{count}").write_bytes(data)
            raise
    print(f"{count} inputs without coverage: atheris is not installed")
    return 0


def _guided(name: str, seconds: int, corpus: Path) -> int:
    """Fuzz one target in this process, which ends with it."""
    logging.lastResort = None  # what the product logs about its inputs is not news
    findings = corpus / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    try:
        import atheris  # noqa: PLC0415  only here, and not everywhere
    except ImportError:
        from fuzzing.targets import TARGETS  # noqa: PLC0415

        return _blindly(*TARGETS[name], seconds, findings)
    with atheris.instrument_imports(include=["mustcall"]):
        from fuzzing.targets import TARGETS  # noqa: PLC0415
    take, seeds = TARGETS[name]
    kept = corpus / name
    kept.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds):
        (kept / f"seed-{number}").write_bytes(seed[:_LONGEST])
    flags = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", "-timeout=20", "-rss_limit_mb=2048"]
    flags += [f"-artifact_prefix={findings}/{name}-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *flags, str(kept)], take)
    atheris.Fuzz()
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--again", type=Path, help="run one input of one target")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    unknown = [name for name in options.targets if name not in NAMES]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; there are: {', '.join(NAMES)}")
    if options.again is not None:
        from fuzzing.targets import TARGETS  # noqa: PLC0415

        TARGETS[options.targets[0]].take(options.again.read_bytes())
        return 0
    if options.here:
        return _guided(options.targets[0], int(options.minutes * 60), options.corpus)
    failed: list[str] = []
    for name in options.targets or NAMES:
        print(f"== {name}", flush=True)
        words = ["--here", "--minutes", str(options.minutes), "--corpus", str(options.corpus), name]
        if subprocess.run([sys.executable, __file__, *words], check=False).returncode:  # noqa: S603
            failed.append(name)
    print(f"findings: {', '.join(failed)} (inputs in {options.corpus / 'findings'})" if failed else "no findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
