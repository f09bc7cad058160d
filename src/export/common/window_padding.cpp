#include "src/export/common/window_padding.h"

#include <algorithm>

#include "src/core/divide_up.h"

namespace carole::exporting {

NamedPadding NameOf(const Padding& padding, Extent image, Extent window, Extent stride) {
  if (padding == Padding{}) return NamedPadding::kValid;
  const auto total = [](int64_t n, int64_t size, int64_t step) {
    return std::max<int64_t>((DivideUp(n, step) - 1) * step + size - n, 0);
  };
  const int64_t rows = total(image.h, window.h, stride.h);
  const int64_t columns = total(image.w, window.w, stride.w);
  const Padding same{rows / 2, columns / 2, rows - rows / 2, columns - columns / 2};
  return padding == same ? NamedPadding::kSame : NamedPadding::kOther;
}

}  // namespace carole::exporting
