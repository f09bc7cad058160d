#include "collectives/communicator_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::collectives {

AllReduceAlgorithm ParseAllReduce(std::string_view name) {
  const auto names = SelectableAllReduceNames();
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<AllReduceAlgorithm>(found - names.begin());
  throw UsageError(fmt::format("[comm] --all_reduce: no such algorithm: got {}, want one of {}",
                               name, JoinTexts(names)));
}

DType ParseWireType(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    if (Name(dtype) == name) return dtype;
  }
  throw UsageError(fmt::format("[comm] --wire_dtype: got {}, want fp32 or bf16", name));
}

}  // namespace carole::collectives
