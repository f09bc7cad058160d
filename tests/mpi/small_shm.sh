#!/bin/sh
# small_shm.sh SIZE COMMAND...: runs the command where /dev/shm has so much room, as containers' 64 MB. Exit code 77 where
# this may not be done.
size=$1
shift
unshare -m true 2>/dev/null || {
  echo "skipped: no mount namespaces here"
  exit 77
}
# shellcheck disable=SC2016 # the words are those of the inner shell
exec unshare -m sh -c 'mount -t tmpfs -o "size=$1,mode=1777" tmpfs /dev/shm || exit 77; shift; exec "$@"' sh "$size" "$@"
