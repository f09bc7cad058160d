#!/bin/bash
# Packs the program, its tests and every shared library that they need into one relocatable tar file (a "bundle").
#
#   tests/gpu/bundle.sh BUILD OUT.tar.xz     e.g. tests/gpu/bundle.sh build build/carole-bundle.tar.xz
#
# The bundle runs on machines whose C library is not older than the one here. It does not hold the C library, the NVIDIA
# driver, and CUDA's libraries (cuDNN, NCCL, cuBLAS). `carole` looks for those where the bundle is unpacked: in
# LD_LIBRARY_PATH, in the system, in a CUDA toolkit, and in Python's nvidia-* wheels. MPI uses TCP and shared memory
# only. The unpacked folder holds carole, mpirun, tests/NAME (scripts that set the environment), and gpu_check.sh, which
# is called as `./gpu_check.sh . /tmp/check`.
#
# Two environment variables add what a check of several ranks or of the plan search needs:
#   CAROLE_NCCL=2.32.3      adds this version of NCCL, with device code for sm_90 only, in the folder nccl. It may also be the
#                           path of a wheel. With NCCL 2.30.3 or newer, two ranks can share a GPU
#   CAROLE_MORE_PLANS=BUILD adds the program of a build with -DCAROLE_MAX_PLANS=64, in the folder more_plans
set -euo pipefail

build=$(realpath "$1")
out=$(realpath -m "$2")
source_root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/carole-bundle
libraries=lib/x86_64-linux-gnu
mkdir -p "$top"/{bin,share,tests,"$libraries"}

die() {
  echo "[bundle] $*" >&2
  exit 1
}

for tool in patchelf mpirun orted; do
  command -v "$tool" >/dev/null || die "$tool: not found; run apt-get install patchelf openmpi-bin (Open MPI 4, Debian 12)"
done
[[ -x $build/carole ]] || die "$build/carole: not found; run ./run build"

# Whether a library must come from the machine where the bundle runs.
is_foreign() {
  [[ $1 =~ ^(ld-linux|libc\.|libm\.|libdl\.|librt\.|libpthread\.|libresolv\.|libutil\.|libnsl|libmvec) ]] ||
    [[ $1 =~ ^(libcuda|libcudart|libcudnn|libcublas|libcupti|libnvidia|libnvrtc|libnccl) ]]
}

# Copies the libraries that a file needs, directly and indirectly.
copy_needed() {
  local name path
  while read -r name path; do
    if is_foreign "$name" || [[ -e $top/$libraries/$name ]]; then continue; fi
    [[ $path == /* ]] || die "$1: its library $name was not found"
    cp -L "$path" "$top/$libraries/$name"
  done < <(LD_LIBRARY_PATH=$build/deps/onednn/lib ldd "$1" | sed -nE 's/^\s*(\S+) => (\S+).*/\1 \2/p')
}

cp "$build/carole" "$top/bin/"
[[ ! -x $build/carole_fused_forms ]] || cp "$build/carole_fused_forms" "$top/bin/"
cp "$build"/libcarole_*.so "$top/lib/"
for test in "$build"/tests/carole_*_tests; do
  if [[ -x $test && $test =~ carole_(backend|golden|graph|io|optim|train|collectives)_tests$ ]]; then
    cp "$test" "$top/bin/"
  fi
done
if [[ -n ${CAROLE_MORE_PLANS:-} ]]; then
  mkdir -p "$top"/more_plans/{bin,lib}
  cp "$CAROLE_MORE_PLANS/carole" "$top/more_plans/bin/"
  cp "$CAROLE_MORE_PLANS"/libcarole_*.so "$top/more_plans/lib/"
fi
cp -r "$source_root/tests/data" "$top/tests/data"
# Golden values of further nets, if a folder with them is given.
[[ -z ${CAROLE_GOLDENS:-} ]] || cp -r "$CAROLE_GOLDENS" "$top/tests/data/goldens/more"
cp "$source_root"/tests/gpu/gpu_{check,ranks,report}.sh "$source_root"/tests/bench/{gpu_torch,torch_nets,peer_nets}.py "$top/"
fashion_mnist=/usr/share/datasets/fashion-mnist
if [[ -d $fashion_mnist ]]; then
  cp -rL "$fashion_mnist" "$top/share/"
  gunzip "$top"/share/fashion-mnist/*.gz # xz compresses it better
fi

# Open MPI, in the folders where it looks relative to its prefix.
cp -L "$(command -v mpirun)" "$(command -v orted)" "$top/bin/"
cp -r /usr/share/openmpi "$top/share/"
for plugins in openmpi/lib/openmpi3 pmix2/lib/pmix; do
  [[ -d /usr/$libraries/$plugins ]] || continue
  mkdir -p "$top/$libraries/$plugins"
  find "/usr/$libraries/$plugins" -name '*.so' | grep -vE 'ofi|ucx|psm|openib|usnic|portals|cuda|monitoring|munge' |
    xargs cp -t "$top/$libraries/$plugins"
done
[[ ! -d /usr/$libraries/pmix2/share ]] || cp -r "/usr/$libraries/pmix2/share" "$top/$libraries/pmix2/" # its messages

while read -r file; do copy_needed "$file"; done < <(find "$top" -type f \( -name '*.so*' -o -path '*/bin/*' \))
# All libraries lie in one folder, and files find it relative to themselves, wherever the bundle is unpacked.
while read -r file; do
  strip --strip-unneeded "$file"
  patchelf --force-rpath --set-rpath "\$ORIGIN/$(realpath --relative-to="$(dirname "$file")" "$top/$libraries")" "$file"
done < <(find "$top" -type f \( -name '*.so*' -o -path '*/bin/*' \))

case ${CAROLE_NCCL:-} in
  '') ;;
  *.whl) python3 "$source_root/tests/gpu/nccl_wheel.py" "$top/nccl" --wheel="$CAROLE_NCCL" ;;
  *) python3 "$source_root/tests/gpu/nccl_wheel.py" "$top/nccl" --version="$CAROLE_NCCL" ;;
esac

cat >"$top/run_here" <<'END'
#!/bin/sh
# Runs the program of this script's name from the bundle. carole, mpirun and the scripts in tests are links to it.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
[ -d "$here/bin" ] || here=$(dirname -- "$here")
export OPAL_PREFIX="$here" PATH="$here:$PATH"
# Debian's PMIx has each of its folders compiled in, so that a prefix alone does not move them.
pmix=$here/lib/x86_64-linux-gnu/pmix2
export PMIX_PREFIX="$pmix" PMIX_LIBDIR="$pmix/lib" PMIX_DATADIR="$pmix/share" PMIX_SYSCONFDIR="$pmix/share"
export PMIX_MCA_mca_base_component_path="$pmix/lib/pmix"
export CAROLE_TEST_DATA="$here/tests/data"
if [ -z "${CAROLE_CUDA_FOLDERS+set}" ]; then
  CAROLE_CUDA_FOLDERS=$(python3 - <<'PYTHON' 2>/dev/null
import glob, site, sys
places = [p for s in [*site.getsitepackages(), site.getusersitepackages(), *sys.path] for p in glob.glob(s + "/nvidia/*/lib")]
print(":".join(dict.fromkeys(places)))
PYTHON
  )
  for folder in /usr/local/cuda*/lib* /usr/local/cuda*/extras/CUPTI/lib64; do
    [ ! -d "$folder" ] || CAROLE_CUDA_FOLDERS="${CAROLE_CUDA_FOLDERS:+$CAROLE_CUDA_FOLDERS:}$folder"
  done
  export CAROLE_CUDA_FOLDERS
  # These folders come after the user's own. The variable is never empty, since that would mean the current folder.
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$CAROLE_CUDA_FOLDERS"
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH%:}
  [ -n "$LD_LIBRARY_PATH" ] || unset LD_LIBRARY_PATH
fi
# On a single machine mpirun needs no ssh, but insists on finding one.
command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=sh
program=$(basename -- "$0")
if [ "$program" = mpirun ] && [ "$(id -u)" -eq 0 ]; then
  exec "$here/bin/mpirun" --allow-run-as-root "$@"
fi
exec "$here/bin/$program" "$@"
END
chmod +x "$top/run_here"
ln -s run_here "$top/carole"
ln -s run_here "$top/mpirun"
[[ ! -x $top/bin/carole_fused_forms ]] || ln -s run_here "$top/carole_fused_forms"
[[ ! -d $top/more_plans ]] || ln -s ../run_here "$top/more_plans/carole"
for test in "$top"/bin/carole_*_tests; do ln -s ../run_here "$top/tests/$(basename "$test")"; done

mkdir -p "$(dirname "$out")"
tar -C "$work" --sort=name --owner=0 --group=0 -cf - carole-bundle | xz -9 >"$out"
echo "$out: $(du -h "$out" | cut -f1), unpacked $(du -sh "$top" | cut -f1)"
most=$((64 << 20)) # bytes that fit through the connection to the borrowed machine
[[ $(stat -c %s "$out") -le $most ]] || echo "[bundle] larger than 64 MiB; split it, or leave something out" >&2
