# Writes the source file that defines KernelFiles() of one backend (src/backend/kernel_table.h):
#   cmake -DSOURCES=a.cpp;b.cpp -DHEADER=src/backend/… -DNAMESPACE=… -DOUTPUT=… -P collect_kernels.cmake
# It finds the functions "KernelRows NAMEKernels()" in SOURCES. HEADER declares KernelRows and KernelFiles().
set(functions "")
foreach(source ${SOURCES})
  file(READ ${source} text)
  string(REGEX MATCHALL "\nKernelRows [A-Za-z0-9]+Kernels\\(\\)" found "${text}")
  list(APPEND functions ${found})
endforeach()
set(declarations "")
set(entries "")
foreach(function ${functions})
  string(REGEX REPLACE "\nKernelRows ([A-Za-z0-9]+)\\(\\)" "\\1" name "${function}")
  string(APPEND declarations "KernelRows ${name}();\n")
  string(APPEND entries "    ${name},\n")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
// Made by src/backend/collect_kernels.cmake.
#include "@HEADER@"

namespace carole::@NAMESPACE@ {

@declarations@
namespace {
constexpr KernelRows (*kFiles[])() = {
@entries@};
}  // namespace

std::span<KernelRows (*const)()> KernelFiles() { return kFiles; }

}  // namespace carole::@NAMESPACE@
]])
