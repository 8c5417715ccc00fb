#!/bin/sh
# Run a command of Python as on older processors: once for each instruction set below the machine's own.
#
#   tools/other_processors.sh .venv/bin/python -m pytest tests/models
#
# torch, oneDNN and MKL each have a switch of their own; the compiled formulas follow torch's.
set -eu

own=$("$1" -c 'import torch; print(torch.backends.cpu.get_cpu_capability())')
as() {
    echo "== on $own, as if it had no more than $1"
    shift
    "$@"
}

case $own in
    AVX512) as AVX2 env ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 "$@" ;;
    *) echo "== this machine has no AVX-512: what AVX2 gives is what every other test here sees" ;;
esac
case $own in
    DEFAULT | "NO AVX") echo "== this machine has no AVX2 either: nothing more to leave out" ;;
    AVX*) as SSE4 env ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 "$@" ;;
    *) echo "== $own: torch has no other instruction set to choose here" ;;
esac
