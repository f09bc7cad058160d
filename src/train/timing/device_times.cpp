#include "src/train/timing/device_times.h"

#include <cstring>

namespace carole::train {

static_assert(DeviceTimes::kNumParts <= DeviceStopwatch::kParts);

DeviceTimes::Milliseconds DeviceTimes::Take(Download& download) {
  DeviceStopwatch now;
  std::memcpy(&now, download.Wait(), sizeof now);
  Milliseconds times;
  for (size_t part = 0; part < times.size(); ++part)
    times[part] = static_cast<double>(now.parts[part] - taken_.parts[part]) * 1e-6;
  taken_ = now;
  return times;
}

}  // namespace carole::train
