// The number of files that this process may have open (ulimit -n).
#pragma once

#include <cstddef>
#include <optional>

namespace carole {

// Makes sure that this process can open `more` files in addition to those that are open now. Raises
// the soft limit if needed, up to the hard limit, with a reserve for files that libraries open.
// Returns the hard limit if it is too low, else nullopt.
std::optional<size_t> RaiseOpenFileLimit(size_t more);

}  // namespace carole
