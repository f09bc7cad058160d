#include "collectives/transport/transport.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "src/core/error.h"

namespace carole::collectives {

namespace {

// Of those messages that are not through.
std::vector<int> MissingPeers(std::span<Message> messages) {
  std::vector<int> missing;
  for (Message& message : messages) {
    if (message.Done()) continue;
    if (std::ranges::count(missing, message.peer()) == 0) missing.push_back(message.peer());
  }
  return missing;
}

// Whether all that their peers sent before they went is here: MPI takes it from shared memory piece
// by piece, some at each look.
bool HaveCome(std::span<Message> messages) {
  constexpr int kLooks = 100;
  for (int i = 0; i < kLooks; ++i) {
    if (MissingPeers(messages).empty()) return true;
  }
  return false;
}

}  // namespace

bool Message::Done() {
  if (transport_ != nullptr && transport_->Test(request_)) transport_ = nullptr;
  return transport_ == nullptr;
}

void Message::Wait(Watch& watch) { WaitAll({this, 1}, watch); }

// Polls, because MPI has no wait with a deadline: first giving the core away between looks, for a
// time (on a loaded machine a single yield can take milliseconds), then sleeping, so that the
// thread which computes keeps its core. Looks for data become rare: where a segment takes
// milliseconds, several are under way.
void Message::WaitAll(std::span<Message> messages, Watch& watch) {
  using std::chrono::microseconds;
  constexpr microseconds kYielding(200);
  constexpr auto kCheckPeriod = std::chrono::milliseconds(50);
  const microseconds longest_pause(watch.agreed() ? 500 : 100);
  const auto start = std::chrono::steady_clock::now();
  microseconds pause(10);
  auto next_check = std::chrono::steady_clock::time_point::min();
  bool was_checked = false;
  for (;;) {
    const std::vector<int> missing = MissingPeers(messages);
    if (missing.empty()) break;
    const auto now = std::chrono::steady_clock::now();
    if (now - start < kYielding) {
      sched_yield();
      continue;
    }
    if (now >= next_check) {
      was_checked = true;
      try {
        watch.Check(missing);
      } catch (const CommError&) {
        if (!HaveCome(messages)) throw;
        break;
      }
      next_check = now + kCheckPeriod;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, longest_pause);
  }
  if (was_checked) watch.EndCheck();
}

}  // namespace carole::collectives
