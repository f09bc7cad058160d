#!/bin/sh
# run_check.sh PYTHON SCRIPT [ARGUMENT...]: runs the script. Without PYTHON, exits with 77, which ctest counts as skipped.
python=$1
shift
if [ ! -x "$python" ]; then
  echo 'skipped: no interop environment (./run test makes one)'
  exit 77
fi
exec "$python" "$@"
