// Whether a task is done in another way than the usual one. Private to the folder; knows neither
// CUDA nor its libraries, so that a test can ask.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "src/backend/cuda/runtime/cuda.h"
#include "src/core/files/choice_cache.h"

namespace carole::cuda {

// The answer to a question of yes or no, found out once for each device: a kernel that is made
// again, to compute its result anew, is as it was. `time` finds it out, or nothing where there is
// no memory to do so in; device.plans remembers it from run to run. `untimed`: the answer where
// nobody may measure.
template <typename Time>
bool ChooseOnce(const std::string& question, const Device& device, bool untimed, const Time& time) {
  if (device.takes_optional) return true;
  static std::mutex mutex;
  static auto& answers = *new std::map<std::pair<uint64_t, std::string>, bool>;
  const std::lock_guard lock(mutex);
  const std::pair key{device.id, question};
  if (const auto known = answers.find(key); known != answers.end()) return known->second;
  std::optional<bool> answer;
  if (device.plans != nullptr) {
    if (const std::optional<std::string> known = device.plans->Find(question)) {
      answer = *known == "yes";
    } else if ((answer = time())) {
      device.plans->Add(question, *answer ? "yes" : "no");
    }
  }
  return answers.emplace(key, answer.value_or(untimed)).first->second;
}

}  // namespace carole::cuda
