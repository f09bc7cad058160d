// Paddings that have a name in TensorFlow and Keras.
#pragma once

#include <cstdint>

#include "src/backend/ops/window.h"

namespace carole::exporting {

struct Extent {
  int64_t h, w;
};

// kValid: none. kSame: as much as TensorFlow's "SAME" adds. kOther: it has no name.
enum class NamedPadding : uint8_t { kValid, kSame, kOther };

// Returns the name of the padding of an image for a window that moves by `stride`.
NamedPadding NameOf(const Padding& padding, Extent image, Extent window, Extent stride);

}  // namespace carole::exporting
