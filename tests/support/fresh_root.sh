#!/bin/bash
# Does what a new user does on a bare Debian 12: clones this repository and calls `./run demo` and `./run test`.
#
#   tests/support/fresh_root.sh [FOLDER [COMMAND...]]     as root; by default FOLDER=/tmp/carole-fresh, demo and test
#
# Installs Debian's base system into FOLDER with debootstrap and clones HEAD to FOLDER/srv/"my carole". The name has a
# space on purpose. Copies the package sources, pip settings and certificates of this machine. Then runs each COMMAND in
# a chroot and prints its time. FOLDER is kept for inspection; a later call removes it and starts again.
set -euo pipefail

source_root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
fresh=${1:-/tmp/carole-fresh}
shift || true
[[ $# -gt 0 ]] || set -- demo test
clone="/srv/my carole"

die() {
  echo "[fresh_root] $*" >&2
  exit 1
}

stage() {
  local name=$1 start=$SECONDS
  shift
  "$@" || die "$name: failed"
  echo "[fresh_root] $name: $((SECONDS - start)) s"
}

[[ $(id -u) -eq 0 ]] || die "must be root to make and enter another root"
[[ $fresh == /*/* ]] || die "FOLDER: got $fresh, want an absolute path below another folder"
command -v debootstrap >/dev/null || die "debootstrap: not found; apt-get install debootstrap"

unmount() {
  local place
  for place in dev/shm dev/pts dev sys proc; do
    if mountpoint -q "$fresh/$place"; then umount "$fresh/$place"; fi
  done
}

mount_kernel_folders() {
  mount -t proc proc "$fresh/proc"
  mount --bind /sys "$fresh/sys"
  mount --bind /dev "$fresh/dev"
  mount --bind /dev/pts "$fresh/dev/pts"
  mount -t tmpfs -o size=1g tmpfs "$fresh/dev/shm"
}

# Prints the first mirror in the package sources of this machine, in their old or new format.
mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null || true; } |
    awk '/^deb / {for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) {print $i; exit}}
         /^URIs:/ {print $2; exit}'
}

base_system() {
  debootstrap --variant=minbase bookworm "$fresh" "$(mirror)" >"$fresh.log" 2>&1 || {
    tail -n 20 "$fresh.log"
    return 1
  }
}

copy_host_settings() {
  cp -L /etc/resolv.conf /etc/hosts "$fresh/etc/"
  if [[ -f /etc/apt/sources.list.d/debian.sources ]]; then
    rm "$fresh/etc/apt/sources.list"
    cp /etc/apt/sources.list.d/debian.sources "$fresh/etc/apt/sources.list.d/"
  fi
  find /etc/apt/apt.conf.d -iname '*proxy*' -exec cp {} "$fresh/etc/apt/apt.conf.d/" \;
  if [[ -f /etc/pip.conf ]]; then cp /etc/pip.conf "$fresh/etc/"; fi
  if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then # includes certificates that were added to this machine
    mkdir -p "$fresh/usr/local/share/host-ca"
    cp -L /etc/ssl/certs/ca-certificates.crt "$fresh/usr/local/share/host-ca/"
  fi
}

inside() {
  local settings=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
  settings+=(PIP_CERT=/usr/local/share/host-ca/ca-certificates.crt)
  local name
  for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
    if [[ -n ${!name:-} ]]; then settings+=("$name=${!name}"); fi
  done
  chroot "$fresh" env -i "${settings[@]}" "$@"
}

unmount
rm -rf --one-file-system "$fresh"
mkdir -p "$fresh"
trap unmount EXIT
stage "base system" base_system
copy_host_settings
mount_kernel_folders
mkdir -p "$fresh$(dirname "$clone")"
stage clone git clone -q --no-hardlinks "$source_root" "$fresh$clone"
for command in "$@"; do
  stage "./run $command" inside "$clone/run" "$command"
done
