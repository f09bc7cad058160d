// Sets settings of optimizers by name.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "src/optim/optimizers.h"

namespace carole::testing {

// Returns the options with other values for these settings of an optimizer. A bool is 0 or 1.
inline OptimizerOptions With(OptimizerOptions options, std::string_view optimizer,
                             std::initializer_list<std::pair<std::string_view, double>> settings) {
  for (const auto& [name, value] : settings) {
    bool found = false;
    for (const Setting& setting : optim::FindOptimizer(optimizer).settings(options)) {
      if (setting.name != name) continue;
      found = true;
      if (bool* const* flag = std::get_if<bool*>(&setting.value)) **flag = value != 0;
      if (double* const* number = std::get_if<double*>(&setting.value)) **number = value;
    }
    if (!found) throw std::logic_error(std::string(name) + " is no setting of this optimizer");
  }
  return options;
}

}  // namespace carole::testing
