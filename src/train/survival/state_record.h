// The small part of the shared memory that changes in every step: how far the run is, and whether
// the arenas hold a whole state.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "src/train/state/state.h"

namespace carole::train {

// A value of the checkpoint attribute RunFacts::changing_attribute, and the epoch of the progress
// to which it belongs.
struct KeptText {
  static constexpr size_t kMaxBytes = 1 << 16;

  std::atomic<uint64_t> number{0};  // texts are numbered from 1 on; 0: none, or half written
  int64_t epoch = 0;
  uint64_t bytes = 0;
  char text[kMaxBytes] = {};
};

// A rank writes the record. Its guardian reads it after the rank's death. The record is at position
// 0 of the shared memory.
//
// Order of the writes. A step first saves the running statistics, then runs forward, which changes
// the statistics, and then updates the weights. So from the start of a step to its update the state
// consists of the weights and the *saved* statistics:
//
//   statistics saved          statistics_are_saved = true
//   forward, backward         a death here keeps the state before the step
//   update begins             version becomes odd
//   update                    a death here keeps nothing
//   update done               progress and scalars; statistics_are_saved = false; version even
//
// Texts are written in turn. The last two are complete at any time, so a text for the next epoch
// can be written before the step that ends this one: FindText() picks by the progress.
struct StateRecord {
  static constexpr int kMaxScalars = 8;

  std::atomic<uint64_t> version{1};  // odd: the arenas do not hold a whole state
  std::atomic<bool> statistics_are_saved{false};
  std::atomic<bool> averages_are_swapped{false};  // weights and moving averages are exchanged
  std::atomic<int32_t> fatal_signal{0};           // the signal that may have damaged the memory
  std::atomic<uint64_t> manifest_position{0};     // in the file; 0: none yet
  std::atomic<uint64_t> manifest_bytes{0};
  RunState progress;
  double scalars[kMaxScalars] = {};
  int32_t num_scalars = 0;
  uint64_t num_texts = 0;  // written since the start of the run
  KeptText texts[3];

  bool is_whole() const { return version.load() % 2 == 0; }
  // Returns the newest text of the epoch in `progress`; nullopt if there is none.
  std::optional<std::string_view> FindText() const;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<RunState>);

}  // namespace carole::train
