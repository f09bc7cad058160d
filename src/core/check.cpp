#include "src/core/check.h"

namespace carole {

void FailCheck(const char* file, int line, const char* condition, const std::string& text) {
  throw InternalError(
      fmt::format("[check] {}:{}: {} does not hold: {}", file, line, condition, text));
}

}  // namespace carole
