"""The parts of `benchmarks/gateway.py`: bodies, upstream, floor, load generator, processes, plan and report."""
