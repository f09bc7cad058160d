// How the ranks of a host meet in shared memory.
//
// The goal. Before each collective the ranks of a host compare headers, and most collectives need
// one or two barriers more. Sums of a few bytes are frequent, so a meeting must be short. But on a
// full machine ranks share cores with each other and with compute threads. There a rank that spins
// takes the core from the very rank that it waits for. Also, a rank may die or freeze at any
// moment, and the others must notice.
//
// Memory. Each rank owns kSharedBytes: a RankSlot, then kStagingBytes for data. Only its rank
// writes it, and all ranks read it. Fields that are polled lie on cache lines of their own.
//
// Barrier. A rank increments its own counter `barriers` and then waits until the counters of all
// ranks have reached the same value. No counter has two writers, and nothing is ever reset.
//
// Header comparison. Each rank writes its header (and inline data) into its own memory, passes one
// barrier, and reads the headers of all. No second barrier follows. Instead two buffers alternate:
// comparison k uses buffer k % 2. A rank writes that buffer again for comparison k + 2, which is
// after the barrier of comparison k + 1. All ranks have come to that barrier by then, so all have
// finished reading what comparison k showed.
//
//   Example: 4 ranks sum 100 floats each. A rank writes an 80-byte header and 400 bytes of data,
//   sets its counter from 6 to 7, and waits until four counters are 7. Then it compares 4 headers
//   and adds 4 x 400 bytes by itself (SumInlined). That is the whole all-reduce.
//
// Waiting has three phases:
//   1. Spin for about 10 us (kSpins) without giving up the core.
//   2. Yield the core between tests for 200 us (kYielding). A wake-up from sleep takes about 50 us
//      on a virtual machine, and a rank that sleeps makes its neighbor wait for that wake-up. If
//      the neighbor went to sleep within this time, both would sleep in every operation.
//   3. Sleep in the kernel (futex) until a rank sets the counter, at most 20 ms at a time. After
//      each sleep the watchdog checks that the awaited ranks are alive and that the deadline is not
//      over.
//
// No wake-up is lost. The setter stores the value and then reads `sleepers`; the sleeper increments
// `sleepers` and then reads the value. All four accesses are sequentially consistent, so at least
// one of the two threads sees what the other wrote. FUTEX_WAIT returns at once if the value has
// changed meanwhile.
//
// Ranks that are gone. A rank that leaves or fails says so in `presence` and wakes all others. A
// process that was killed says nothing, so waiting ranks probe its process id with signal 0. A rank
// may have come to the barrier and then left before the others looked. So its counter is read once
// more before its absence counts as an error.
//
// Blame. If a local rank is late because it waits for a message of another host, its slot names the
// sender (`waiting_for`), and errors name that rank instead. When such a wait ends, `waits_ended`
// moves. Then the operation has made progress, so the other local ranks restart their deadlines
// too.
#include "collectives/transport/node_group.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::collectives {

namespace {

constexpr long kSleepNanoseconds = 20'000'000;
constexpr int kSpins = 1000;
constexpr auto kYielding = std::chrono::microseconds(200);

// Compares counters that wrap around.
bool Reached(uint32_t value, uint32_t target) { return static_cast<int32_t>(value - target) >= 0; }

// Not FUTEX_WAIT_PRIVATE, because the threads may belong to different processes.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t value) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = kSleepNanoseconds};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void Wake(WaitableCounter& counter) {
  syscall(SYS_futex, &counter.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Set(WaitableCounter& counter, uint32_t value) {
  counter.value.store(value);
  if (counter.sleepers.load() != 0) Wake(counter);
}

uint64_t PidNamespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// Phases 1 and 2 of waiting. Returns whether the counter has reached `target`.
bool SpinUntil(const WaitableCounter& counter, uint32_t target) {
  const auto reached = [&] {
    return Reached(counter.value.load(std::memory_order_acquire), target);
  };
  for (int i = 0; i < kSpins; ++i) {
    if (reached()) return true;
    _mm_pause();
  }
  const auto end = std::chrono::steady_clock::now() + kYielding;
  while (std::chrono::steady_clock::now() < end) {
    sched_yield();
    if (reached()) return true;
  }
  return false;
}

}  // namespace

void NodeGroup::MakeSlot(std::byte* shared) {
  auto* slot = new (shared) RankSlot;
  slot->pid.store(static_cast<int32_t>(getpid()));
  slot->pid_namespace.store(PidNamespace());
}

NodeGroup::NodeGroup(int local_rank, std::vector<int> ranks, std::span<std::byte* const> shared)
    : local_rank_(local_rank), ranks_(std::move(ranks)) {
  CAROLE_CHECK_EQ(ranks_.size(), shared.size(), "ranks of a host");
  for (std::byte* memory : shared) {
    slots_.push_back(std::launder(reinterpret_cast<RankSlot*>(memory)));
    staging_.push_back(memory + kSharedBytes - kStagingBytes);
  }
}

template <typename Check>
void NodeGroup::Await(WaitableCounter& counter, uint32_t target, Watchdog& watchdog, Check check) {
  if (SpinUntil(counter, target)) return;
  bool was_checked = false;
  for (;;) {
    counter.sleepers.fetch_add(1);
    const uint32_t value = counter.value.load();
    if (!Reached(value, target)) SleepWhile(counter.value, value);
    counter.sleepers.fetch_sub(1);
    if (Reached(counter.value.load(), target)) break;
    was_checked = true;
    const uint32_t ended = WaitsEnded();
    if (std::exchange(seen_waits_ended_, ended) != ended) watchdog.NoteProgress();
    try {
      check(watchdog);
    } catch (const CommError&) {  // a rank that is gone may have come before it left
      if (!Reached(counter.value.load(), target)) throw;
      break;
    }
  }
  if (was_checked) watchdog.EndWait();
}

void NodeGroup::Barrier(Watchdog& watchdog) {
  const uint32_t target = ++barriers_;
  Set(mine().barriers, target);
  for (RankSlot* slot : slots_) {
    Await(slot->barriers, target, watchdog, [&](Watchdog& w) {
      std::vector<int> missing;
      for (size_t i = 0; i < slots_.size(); ++i) {
        if (Reached(slots_[i]->barriers.value.load(), target)) continue;
        const int rank = FindStalledRank(i);
        if (std::ranges::count(missing, rank) == 0) missing.push_back(rank);
      }
      if (!missing.empty()) w.Check(missing);
    });
  }
}

HeaderRange NodeGroup::CompareHeaders(const OperationHeader& header, Watchdog& watchdog,
                                      std::span<const std::byte> inline_data) {
  CAROLE_CHECK(inline_data.size() <= kMaxInlineBytes, "inline data of {} bytes",
               inline_data.size());
  ++compares_;
  const uint32_t buffer = BufferIndex();
  mine().headers[buffer] = header;
  if (!inline_data.empty())
    std::memcpy(InlineData(local_rank_), inline_data.data(), inline_data.size());
  Barrier(watchdog);
  HeaderRange range = MakeHeaderRange(slots_[0]->headers[buffer], ranks_[0]);
  for (size_t i = 1; i < slots_.size(); ++i) {
    const OperationHeader& other = slots_[i]->headers[buffer];
    if (std::memcmp(&other, &range.low, sizeof(OperationHeader)) == 0) continue;
    Merge(MakeHeaderRange(other, ranks_[i]), &range);
  }
  return range;
}

void NodeGroup::PublishResult(const HeaderRange& result) {
  mine().result = result;
  Set(mine().results, ++results_);
}

HeaderRange NodeGroup::AwaitResult(Watchdog& watchdog) {
  RankSlot& first = *slots_[0];
  Await(first.results, ++results_, watchdog, [&](Watchdog& w) {
    const int rank = FindStalledRank(0);
    w.Check({&rank, 1});
  });
  return first.result;
}

int NodeGroup::FindStalledRank(size_t local_rank) const {
  const int rank = ranks_[local_rank];
  const int32_t awaited = slots_[local_rank]->waiting_for.load();
  return awaited < 0 || !DepartureReason(rank).empty() ? rank : awaited;
}

void NodeGroup::SetWaitingFor(int rank, const RankActivity& activity) {
  mine().awaited_activity.Set(activity);
  if (mine().waiting_for.exchange(rank) >= 0 && rank < 0) mine().waits_ended.fetch_add(1);
}

uint32_t NodeGroup::WaitsEnded() const {
  uint32_t ended = 0;
  for (const RankSlot* slot : slots_) ended += slot->waits_ended.load(std::memory_order_relaxed);
  return ended;
}

std::optional<RankActivity> NodeGroup::ActivityOf(int rank) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (ranks_[i] == rank) return slots_[i]->activity.Get();
  }
  for (const RankSlot* slot : slots_) {
    if (slot->waiting_for.load() == rank) return slot->awaited_activity.Get();
  }
  return std::nullopt;
}

void NodeGroup::WakeAll() {
  for (RankSlot* slot : slots_) {
    Wake(slot->barriers);
    Wake(slot->results);
  }
}

void NodeGroup::Leave(const std::string& failure) {
  if (mine().presence.load() == Presence::kFailed) return;
  failure.copy(mine().failure, sizeof(RankSlot::failure) - 1);
  mine().presence.store(failure.empty() ? Presence::kLeft : Presence::kFailed);
  WakeAll();
}

void NodeGroup::Abort() {
  mine().aborted.store(true);
  WakeAll();
}

bool NodeGroup::aborted() const { return slots_[local_rank_]->aborted.load(); }

std::string NodeGroup::DepartureReason(int rank) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (ranks_[i] != rank) continue;
    const Presence presence = slots_[i]->presence.load();
    if (presence == Presence::kFailed) return std::string("it failed: ") + slots_[i]->failure;
    if (presence == Presence::kLeft) return "it has left the job";
    // Containers that share memory may have process id namespaces of their own.
    const bool is_known = slots_[i]->pid_namespace.load() == PidNamespace();
    const bool is_dead = is_known && kill(slots_[i]->pid.load(), 0) != 0 && errno == ESRCH;
    return is_dead ? "its process has ended" : "";
  }
  return "";
}

}  // namespace carole::collectives
