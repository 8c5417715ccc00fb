#!/bin/sh
# Make the virtual environment .venv and install the package into it, only when that is needed.
#
#   tools/environment.sh run    the package with its command line, data sets, plots, reports and sweeps
#   tools/environment.sh dev    ... and what the tests and checks need
#   tools/environment.sh bench  in .venv-bench: the package, and the libraries that it is compared with
#
# .venv/.installed   folder, checksum of what an install is made from, run or dev: nothing to do while it fits
# .venv/.installing  process number while an install is under way; found without that process, the
#                    environment was left half-made, so it is made anew
# .venv/install.log  what pip said
set -eu

wanted=$1 venv=.venv peers=
case $wanted in
    run) package='.[lab]' ;;
    dev) package='.[dev]' ;;
    bench) package='.[lab]' venv=.venv-bench peers=benchmarks/requirements.txt ;;
    *) echo "environment.sh: '$wanted' is none of run, dev and bench" >&2; exit 2 ;;
esac

cd "$(dirname "$0")/.."
here=$(pwd -P)
sum=$(cat pyproject.toml constraints.txt hatch_build.py src/bayeswell/ops/*.cpp src/bayeswell/ops/*.h $peers | cksum)
python=$venv/bin/python
installed=$venv/.installed
installing=$venv/.installing

fail() {
    echo "make: $1" >&2
    exit 1
}

suits() { # can this interpreter carry the package?
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suits "$PYTHON" && found=$PYTHON && return
        fail "PYTHON=$PYTHON is not a Python of 3.11 or newer with its venv module"
    fi
    for found in python3 python3.11 python3.12 python3.13 python3.14; do
        suits "$found" && return
    done
    fail "no Python of 3.11 or newer with its venv module among python3, python3.11 to python3.14; install one, or name one: make PYTHON=/path/to/python3"
}

if [ -e $installing ]; then
    other=$(cat $installing)
    if [ -n "$other" ] && kill -0 "$other" 2>/dev/null; then
        fail "process $other is installing into $venv; wait for it (or, if it is something else, run make clean)"
    fi
    echo "$venv was left half-made: making it anew"
    rm -rf $venv
elif [ -e $installed ]; then
    { read -r made_in; read -r made_from; read -r level; } < $installed || level=
    if [ "$made_in" != "$here" ] || ! $python -c pass 2>/dev/null; then
        echo "$venv was moved or has lost its Python: making it anew"
        rm -rf $venv
    elif [ "$made_from" = "$sum" ] && { [ "$level" = dev ] || [ "$level" = "$wanted" ]; }; then
        exit 0
    elif [ "$level" = dev ]; then # what was there for the tests is renewed with the rest
        wanted=dev package='.[dev]'
    fi
elif [ -e $venv ]; then
    # Made by hand, perhaps with care: used if it can be.
    if ! suits $python || ! $python -m pip --version >/dev/null 2>&1; then
        echo "$venv cannot be used: making it anew"
        rm -rf $venv
    fi
fi

[ -e $python ] || find_python
mkdir -p $venv
echo $$ > $installing
if [ ! -e $python ]; then
    echo "making $venv with $("$found" --version 2>&1)"
    "$found" -m venv $venv || fail "'$found -m venv $venv' failed: see above"
fi

echo "installing $package into $venv (the first time takes minutes; progress: $venv/install.log)"
# What is imported is compiled then: most of what is installed never is, and pip would take minutes to compile it all.
if ! $python -m pip install --no-compile --progress-bar off -c constraints.txt -e "$package" >$venv/install.log 2>&1 </dev/null; then
    tail -n 30 $venv/install.log >&2
    fail "the install failed: its last lines are above, the whole is in $venv/install.log; the next make starts afresh"
fi
if [ -n "$peers" ]; then
    # One by one and without their requirements: none may bring another torch, and one that fails is only left out.
    sed 's/[[:space:]]*#.*//; /^$/d' $peers | while read -r peer; do
        $python -m pip install --progress-bar off --no-deps "$peer" >>$venv/install.log 2>&1 </dev/null ||
            echo "note: $peer could not be installed and is left out; the reason is in $venv/install.log"
    done
fi
printf '%s\n' "$here" "$sum" "$wanted" > $installed
rm -f $installing

if ls -d $venv/lib/python*/site-packages/nvidia >/dev/null 2>&1; then
    echo "note: pip was offered no CPU build of torch and took one with CUDA: it works the same, it is only larger"
fi
