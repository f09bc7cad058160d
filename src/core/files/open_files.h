// How many files this process may have open.
#pragma once

#include <cstddef>
#include <optional>

namespace carole {

// Raises the limit, as far as the hard one lets it, so that so many more files can be opened beside
// those that are open and some that libraries open. The hard limit, where that is too low.
std::optional<size_t> AllowOpenFiles(size_t more);

}  // namespace carole
