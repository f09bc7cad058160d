#!/bin/sh
# small_shm.sh SIZE COMMAND...: runs the command where /dev/shm has so much room, as containers' 64 MB. Exit code 77 where
# this may not be done.
size=$1
shift
skip() {
  echo "skipped: $1"
  exit 77
}
unshare -m true 2>/dev/null || skip "no mount namespaces here"
unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null || skip "nothing may be mounted at /dev/shm here"
# shellcheck disable=SC2016 # the words are those of the inner shell
exec unshare -m sh -c 'mount -t tmpfs -o "size=$1,mode=1777" tmpfs /dev/shm || exit 1; shift; exec "$@"' sh "$size" "$@"
