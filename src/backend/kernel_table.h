// The kernels of a backend, as one table.
//
// Each file of kernels ends with a constexpr array of KernelRow and a function
//
//   KernelRows NAMEKernels() { return kRows; }
//
// At build time, src/backend/collect_kernels.cmake finds these functions in the sources and writes
// KernelFiles(), which lists them. So a new file needs no change elsewhere, and nothing depends on
// the order of static initialization.
#pragma once

#include <memory>
#include <span>

#include "src/backend/backend.h"

namespace carole {

// Says which function makes the kernel for an operation. Context is what the functions of a backend
// get in addition to the operation. Each backend has an alias KernelRow for its own Context.
template <typename Context>
struct KernelRowFor {
  OpKind kind;
  // Makes the kernel. Throws InternalError if the shapes do not fit together.
  std::unique_ptr<Kernel> (*make)(const OpSpec& spec, Context context);
  // Whether the kernel supports this operation of its kind. Null: it supports the types that the
  // backend's SupportsTypes() accepts.
  bool (*supports)(const OpSpec& spec, Context context) = nullptr;
  // If several rows support an operation, the one with the highest priority makes its kernel.
  int priority = 0;
};

// The rows of one file.
template <typename Context>
using KernelRowsFor = std::span<const KernelRowFor<Context>>;

// Returns the row for an operation, or nullptr if no kernel supports it. `files` are the backend's
// KernelFiles(); supports_types(spec, context) is asked for rows without supports().
template <typename Context, typename SupportsTypes>
const KernelRowFor<Context>* FindKernel(std::span<KernelRowsFor<Context> (*const)()> files,
                                        const OpSpec& spec, std::type_identity_t<Context> context,
                                        const SupportsTypes& supports_types) {
  if (spec.inputs.empty() || spec.outputs.empty()) return nullptr;
  const KernelRowFor<Context>* found = nullptr;
  for (const auto rows : files) {
    for (const KernelRowFor<Context>& row : rows()) {
      if (!(row.kind == spec.kind) || (found != nullptr && row.priority <= found->priority))
        continue;
      const bool supported =
          row.supports != nullptr ? row.supports(spec, context) : supports_types(spec, context);
      if (supported) found = &row;
    }
  }
  return found;
}

}  // namespace carole
