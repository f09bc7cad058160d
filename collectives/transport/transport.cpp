#include "collectives/transport/transport.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "src/core/error.h"

namespace carole::collectives {

namespace {

// Returns the peers of the incomplete messages.
std::vector<int> MissingPeers(std::span<Message> messages) {
  std::vector<int> missing;
  for (Message& message : messages) {
    if (message.Done()) continue;
    if (std::ranges::count(missing, message.peer()) == 0) missing.push_back(message.peer());
  }
  return missing;
}

// Returns whether the peers sent all of these messages before they left the job. Tests repeatedly,
// because MPI takes messages from shared memory piece by piece, a few at each test.
bool AllWereSent(std::span<Message> messages) {
  constexpr int kTests = 100;
  for (int i = 0; i < kTests; ++i) {
    if (MissingPeers(messages).empty()) return true;
  }
  return false;
}

}  // namespace

bool Message::Done() {
  if (transport_ != nullptr && transport_->Test(request_)) transport_ = nullptr;
  return transport_ == nullptr;
}

void Message::Wait(Watchdog& watchdog) { WaitAll({this, 1}, watchdog); }

// Polls, because MPI has no wait with a deadline.
//
// For the first 200 us it yields the core between tests. This phase is limited by time rather than
// by a number of yields, because on a loaded machine a single yield can take milliseconds. Then it
// sleeps between tests, so that the thread which computes keeps its core. Pauses grow from 10 us to
// 100 us, and to 500 us for data: a segment of data takes milliseconds, and several are in flight.
void Message::WaitAll(std::span<Message> messages, Watchdog& watchdog) {
  using std::chrono::microseconds;
  constexpr microseconds kYielding(200);
  constexpr auto kCheckPeriod = std::chrono::milliseconds(50);
  const microseconds longest_pause(watchdog.all_arrived() ? 500 : 100);
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
        watchdog.Check(missing);
      } catch (const CommError&) {
        if (!AllWereSent(messages)) throw;
        break;
      }
      next_check = now + kCheckPeriod;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, longest_pause);
  }
  if (was_checked) watchdog.EndWait();
}

}  // namespace carole::collectives
