// The names of a net's results in TF-Slim's graphs.
#pragma once

#include <string>
#include <string_view>

namespace carole::exporting {

struct OutputNames {
  std::string logits, predictions;
};

// Returns the names of the nodes for the net of this name. Nets of other programs, and results that
// TF-Slim's net does not have, get the names "logits" and "predictions".
OutputNames OutputNamesOf(std::string_view net);

}  // namespace carole::exporting
