// The name of this machine.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace carole {

// Returns what gethostname() says, or "unknown" if that fails.
inline std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace carole
