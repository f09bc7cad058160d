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

constexpr long kSleepNanoseconds =
    20'000'000;               // between looks at whether the awaited rank still lives
constexpr int kSpins = 1000;  // about 10 µs without giving the core away
// Then the core is given away between looks, for longer than a wake-up takes (50 µs on a virtual
// machine): a rank that sleeps makes its neighbor wait for the wake-up, and if that one slept in
// turn, both would sleep each time.
constexpr auto kYielding = std::chrono::microseconds(200);

// Counters wrap round.
bool Reached(uint32_t value, uint32_t target) { return static_cast<int32_t>(value - target) >= 0; }

// Not the private kind of futex: the waiting thread may be another process's.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t value) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = kSleepNanoseconds};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void Wake(Flag& flag) { syscall(SYS_futex, &flag.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void Set(Flag& flag, uint32_t value) {
  flag.value.store(value);  // sequentially consistent with `sleepers`: no wake-up is lost
  if (flag.sleepers.load() != 0) Wake(flag);
}

uint64_t ProcessSpace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool SpinUntil(const Flag& flag, uint32_t target) {
  const auto reached = [&] { return Reached(flag.value.load(std::memory_order_acquire), target); };
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
  slot->process.store(static_cast<int32_t>(getpid()));
  slot->process_space.store(ProcessSpace());
}

NodeGroup::NodeGroup(int local_rank, std::vector<int> ranks, std::span<std::byte* const> shared)
    : local_rank_(local_rank), ranks_(std::move(ranks)) {
  CAROLE_CHECK_EQ(ranks_.size(), shared.size(), "ranks of a host");
  for (std::byte* memory : shared) {
    slots_.push_back(std::launder(reinterpret_cast<RankSlot*>(memory)));
    staging_.push_back(memory + kSharedBytes - kStagingBytes);
  }
}

template <typename Missing>
void NodeGroup::Await(Flag& flag, uint32_t target, Watch& watch, Missing missing) {
  if (SpinUntil(flag, target)) return;
  bool was_checked = false;
  for (;;) {
    flag.sleepers.fetch_add(1);
    const uint32_t value = flag.value.load();
    if (!Reached(value, target)) SleepWhile(flag.value, value);
    flag.sleepers.fetch_sub(1);
    if (Reached(flag.value.load(), target)) break;
    was_checked = true;
    // A neighbor's slow messages hold this rank up, too.
    const uint32_t ended = WaitsEnded();
    if (std::exchange(seen_waits_ended_, ended) != ended) watch.Progress();
    try {
      missing(watch);
    } catch (const CommError&) {  // whoever is gone may have come before
      if (!Reached(flag.value.load(), target)) throw;
      break;
    }
  }
  if (was_checked) watch.EndCheck();
}

void NodeGroup::Sync(Watch& watch) {
  const uint32_t target = ++syncs_;
  Set(mine().arrived, target);
  for (RankSlot* slot : slots_) {
    Await(slot->arrived, target, watch, [&](Watch& w) {
      std::vector<int> missing;
      for (size_t i = 0; i < slots_.size(); ++i) {
        if (Reached(slots_[i]->arrived.value.load(), target)) continue;
        const int culprit = Culprit(i);
        if (std::ranges::count(missing, culprit) == 0) missing.push_back(culprit);
      }
      if (!missing.empty()) w.Check(missing);
    });
  }
}

HeaderRange NodeGroup::Compare(const Header& header, Watch& watch,
                               std::span<const std::byte> shown) {
  CAROLE_CHECK(shown.size() <= kMostShown, "{} bytes to be shown", shown.size());
  ++compares_;
  const uint32_t turn = Turn();
  mine().headers[turn] = header;
  if (!shown.empty()) std::memcpy(Shown(local_rank_), shown.data(), shown.size());
  Sync(watch);
  HeaderRange verdict = MakeHeaderRange(slots_[0]->headers[turn], ranks_[0]);
  for (size_t i = 1; i < slots_.size(); ++i) {
    const Header& other = slots_[i]->headers[turn];
    if (std::memcmp(&other, &verdict.low, sizeof(Header)) == 0) continue;
    Merge(MakeHeaderRange(other, ranks_[i]), &verdict);
  }
  return verdict;
}

void NodeGroup::Announce(const HeaderRange& verdict) {
  mine().verdict = verdict;
  Set(mine().decided, ++verdicts_);
}

HeaderRange NodeGroup::AwaitAnnouncement(Watch& watch) {
  RankSlot& first = *slots_[0];
  Await(first.decided, ++verdicts_, watch, [&](Watch& w) {
    const int culprit = Culprit(0);
    w.Check({&culprit, 1});
  });
  return first.verdict;
}

int NodeGroup::Culprit(size_t local_rank) const {
  const int rank = ranks_[local_rank];
  const int32_t awaited = slots_[local_rank]->waiting_for.load();
  return awaited < 0 || !WhyGone(rank).empty() ? rank : awaited;
}

void NodeGroup::SetWaitingFor(int rank, const Whereabouts& where) {
  mine().awaited.Set(where);
  if (mine().waiting_for.exchange(rank) >= 0 && rank < 0) mine().waits_ended.fetch_add(1);
}

uint32_t NodeGroup::WaitsEnded() const {
  uint32_t ended = 0;
  for (const RankSlot* slot : slots_) ended += slot->waits_ended.load(std::memory_order_relaxed);
  return ended;
}

std::optional<Whereabouts> NodeGroup::WhereIs(int rank) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (ranks_[i] == rank) return slots_[i]->where.Get();
  }
  for (const RankSlot* slot : slots_) {
    if (slot->waiting_for.load() == rank) return slot->awaited.Get();
  }
  return std::nullopt;
}

void NodeGroup::WakeAll() {
  for (RankSlot* slot : slots_) {
    Wake(slot->arrived);
    Wake(slot->decided);
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

std::string NodeGroup::WhyGone(int rank) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (ranks_[i] != rank) continue;
    const Presence presence = slots_[i]->presence.load();
    if (presence == Presence::kFailed) return std::string("it failed: ") + slots_[i]->failure;
    if (presence == Presence::kLeft) return "it has left the job";
    // Containers that share memory may each count processes for themselves.
    const bool is_known = slots_[i]->process_space.load() == ProcessSpace();
    const bool is_dead = is_known && kill(slots_[i]->process.load(), 0) != 0 && errno == ESRCH;
    return is_dead ? "its process has ended" : "";
  }
  return "";
}

}  // namespace carole::collectives
