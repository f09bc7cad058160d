#!/bin/sh
# small_shm.sh SIZE COMMAND...: runs the command with a /dev/shm of this size (such as 40m), as in containers with 64 MB.
# Exits with 77 (skipped) if mounting is not allowed.
size=$1
shift
skip() {
  echo "skipped: $1"
  exit 77
}
unshare -m true 2>/dev/null || skip "no mount namespaces here"
unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null || skip "nothing may be mounted at /dev/shm here"
# shellcheck disable=SC2016 # the inner shell expands the variables
exec unshare -m sh -c 'mount -t tmpfs -o "size=$1,mode=1777" tmpfs /dev/shm || exit 1; shift; exec "$@"' sh "$size" "$@"
