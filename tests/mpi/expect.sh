#!/bin/sh
# expect.sh CODE SECONDS WORDS COMMAND...: runs the command and fails unless
#   - it ends with exit code CODE within SECONDS,
#   - its output matches each line of WORDS, which are extended regular expressions ("" matches any output), and
#   - no process is left behind.
code=$1 seconds=$2 words=$3
shift 3
log=$(mktemp)
trap 'rm -f "$log"' EXIT
start=$(date +%s)
# Processes that are left behind are found by this variable in their environment.
env CAROLE_TEST_JOB="$log" timeout -s KILL $((seconds + 30)) "$@" >"$log" 2>&1
got=$?
took=$(($(date +%s) - start))
cat "$log"
for _ in $(seq 150); do # mpirun does not wait for processes that it killed
  left=$(grep -lsz "^CAROLE_TEST_JOB=$log\$" /proc/[0-9]*/environ | wc -l)
  [ "$left" -gt 0 ] || break
  sleep 0.2
done
[ "$got" -eq "$code" ] || { echo "exit code: got $got, want $code"; exit 1; }
[ "$took" -le "$seconds" ] || { echo "time: got $took s, want at most $seconds s"; exit 1; }
printf '%s\n' "$words" | while IFS= read -r line; do
  [ -z "$line" ] || grep -Eq "$line" "$log" || { echo "output: want $line"; exit 1; }
done || exit 1
[ "$left" -eq 0 ] || { echo "processes left behind: got $left, want 0"; exit 1; }
