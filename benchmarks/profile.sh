#!/bin/sh
# Where a worker's time goes while the load generator works it.
#
#   benchmarks/profile.sh WORDS...        for example: benchmarks/profile.sh logins, clear
#
# Runs the scenarios with these words against Gatepost alone, and records its worker meanwhile: with py-spy where it is
# installed (`pip install py-spy`; native frames too), with perf where that is (kernel, OpenSSL, libuv, interpreter).
# The results are in $OUT (default: ./profile).
set -eu
here=$(dirname "$0")
out=${OUT:-profile}
python=${PYTHON:-python}
mkdir -p "$out"
"$python" "$here/run.py" --peers gatepost --repeat 1 --seconds 12 --warm-up 1 --keep "$out/run" --only "$@" >"$out/table" 2>"$out/log" &
bench=$!
worker=
for _ in $(seq 100); do
    sleep 0.2
    grep -q warmed "$out/log" || continue
    supervisor=$(cat "$out/run/gatepost.pid")
    worker=$(pgrep -P "$supervisor" | head -n 1)
    break
done
[ -n "$worker" ] || { cat "$out/log"; exit 1; }
sleep 1.5
if command -v py-spy >/dev/null; then
    py-spy record --pid "$worker" --duration 5 --rate 997 --nonblocking --format raw --output "$out/stacks" || true
    py-spy record --pid "$worker" --duration 3 --rate 200 --native --output "$out/flame.svg" || true
fi
if command -v perf >/dev/null; then
    perf record -q -F 999 -g -p "$worker" -o "$out/perf.data" -- sleep 3 && perf report -i "$out/perf.data" --no-children --stdio -g none 2>/dev/null | grep -v '^#' | head -n 60 >"$out/perf.txt" || true
fi
wait $bench
cat "$out/table"
