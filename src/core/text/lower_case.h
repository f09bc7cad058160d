// Compares names without regard to case.
#pragma once

#include <string>

namespace carole {

// Returns the text with the letters A to Z in lower case, in any locale.
inline std::string LowerCase(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace carole
