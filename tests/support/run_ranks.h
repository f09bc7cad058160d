// Runs a function on N ranks. Each rank is a thread of this process with a communicator of its own.
//
//   RunRanks(4, [](Communicator& c) { … });
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/local/communicator.h"

namespace carole::testing {

using collectives::Communicator;
using collectives::CommunicatorOptions;
using collectives::FullCommunicator;

// Returns the text of the error that each rank threw, or "". Communicators live until all ranks
// have finished.
inline std::vector<std::string> ErrorsOfRanks(int size,
                                              const std::function<void(FullCommunicator&)>& work,
                                              const CommunicatorOptions& options = {}) {
  auto communicators = collectives::MakeLocalCommunicators(size, options);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        work(*communicators[r]);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Runs `work` on all ranks and expects that no rank throws.
inline void RunRanks(int size, const std::function<void(FullCommunicator&)>& work,
                     const CommunicatorOptions& options = {}) {
  const auto errors = ErrorsOfRanks(size, work, options);
  for (int r = 0; r < size; ++r) EXPECT_EQ(errors[r], "") << "rank " << r << " of " << size;
}

}  // namespace carole::testing
