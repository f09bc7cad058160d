// Decides by timing whether a task uses an alternative implementation, and remembers the decision.
// Private to src/backend/cuda. Includes neither CUDA nor its libraries, so that it can be tested
// without a GPU.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "src/backend/cuda/runtime/cuda.h"
#include "src/core/files/tuning_cache.h"

namespace carole::cuda {

// Returns the answer to a yes/no question, such as "<convolution>, in one pass".
//   time       measures, and returns the answer, or nothing if there is no memory to measure in
//   untimed    the answer if timing is off (device.plan_cache is null) or `time` returned nothing
// The answer is found once for each device of the process. A kernel that is made again, to
// recompute its result, is therefore the same as before. device.plan_cache keeps measured answers
// from run to run. Thread-safe.
template <typename Time>
bool ChooseOnce(const std::string& question, const Device& device, bool untimed, const Time& time) {
  if (device.force_optional_kernels) return true;
  static std::mutex mutex;
  static auto& answers = *new std::map<std::pair<uint64_t, std::string>, bool>;
  const std::lock_guard lock(mutex);
  const std::pair key{device.id, question};
  if (const auto known = answers.find(key); known != answers.end()) return known->second;
  std::optional<bool> answer;
  if (device.plan_cache != nullptr) {
    if (const std::optional<std::string> known = device.plan_cache->Find(question)) {
      answer = *known == "yes";
    } else if ((answer = time())) {
      device.plan_cache->Add(question, *answer ? "yes" : "no");
    }
  }
  return answers.emplace(key, answer.value_or(untimed)).first->second;
}

}  // namespace carole::cuda
