#!/bin/sh
# run_check.sh PYTHON SCRIPT [ARGUMENT...]: runs the script, or says that it is skipped (77 to ctest).
python=$1
shift
if [ ! -x "$python" ]; then
  echo 'skipped: no interop environment (./run test makes one)'
  exit 77
fi
exec "$python" "$@"
