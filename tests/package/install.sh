#!/bin/sh
# install.sh CMAKE BUILD: installs a build, moves the folder, and runs the program there. Also runs a copy of build/carole.
set -eu
cmake=$1
build=$2
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

# same_version PROGRAM: fails if the program does not start without environment variables.
same_version() {
  [ "$(env -i "$1" --version)" = "$("$build/carole" --version)" ] || fail "$1: does not run, or has another version"
}

"$cmake" --install "$build" --prefix "$top/first" >"$top/log" 2>&1 || fail "$(tail -n 20 "$top/log")"
mv "$top/first" "$top/moved"
same_version "$top/moved/bin/carole"
for module in "$build/libcarole_cuda.so" "$build/libcarole_nccl.so"; do
  [ ! -e "$module" ] || [ -e "$top/moved/lib/carole/$(basename "$module")" ] || fail "$module: is not installed"
done
if ldd "$top/moved/bin/carole" | grep -F " $build/"; then fail "want libraries that are installed, not those of the build"; fi

cp "$build/carole" "$top/copy"
same_version "$top/copy"
