#include "collectives/communicator_options.h"

#include <algorithm>

#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::collectives {

AllReduceAlgorithm ParseAllReduce(std::string_view name) {
  const auto names = SelectableAllReduceNames();
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<AllReduceAlgorithm>(found - names.begin());
  throw UsageError({.tag = "comm",
                    .option = "all_reduce",
                    .problem = "no such algorithm",
                    .got = name,
                    .want = "one of " + JoinTexts(names)});
}

}  // namespace carole::collectives
