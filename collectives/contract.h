// What ranks agree on before data is believed, and how long they wait for each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "src/core/dtype.h"

namespace carole::collectives {

enum class Operation : uint8_t {
  kAllReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kBarrier,
  kAllocate,
  kLeave
};
std::string_view Name(Operation operation);

// One operation as one rank sees it. Compared byte by byte between ranks (so: no padding,
// zero-filled).
struct Header {
  uint64_t sequence = 0;
  uint64_t count = 0;  // elements of sums, else bytes
  uint64_t place =
      kOutside;  // arena number and byte offset in it, so that ranks reduce the same range
  uint64_t plan = 0;
  int64_t step = 0;
  int32_t bucket = 0;
  int32_t root = 0;
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kU8;
  uint8_t algorithm = 0;  // row of algorithms.h, kAutoRow: to be measured
  DType wire = DType::kF32;
  char what[28] = {};  // cut if longer

  static constexpr uint64_t kOutside = ~uint64_t{0};
  static constexpr int kOffsetBits = 48;  // of place, the low ones
};
static_assert(sizeof(Header) == 80, "no padding: headers are compared as bytes");

Header MakeHeader(Operation operation, DType dtype, uint64_t count, const Tag& tag);

// "all_reduce of 1000 fp32, tag gradients, step 7, bucket 2"
std::string Describe(const Header& header);

// The smallest and the largest header of a group of ranks; the group agrees if these are the same.
// Merging is associative and idempotent, and all ranks arrive at the same verdict, hence throw the
// same error.
struct Verdict {
  Header low, high;
  int32_t low_rank = 0, high_rank = 0;
};
Verdict MakeVerdict(const Header& header, int rank);
void Merge(const Verdict& from, Verdict* into);

// Throws CommError that names both ranks, by `names`, and every field that differs.
void RequireAgreement(const Verdict& verdict, std::span<const std::string> names);

class RollCall;

// What a watch asks and tells. All of it may be empty.
struct WatchHooks {
  int rank = 0;                                   // that watches
  std::function<std::string(int rank)> why_gone;  // how a rank has ended, "" if it has not
  std::function<std::string(int rank)> where;     // "in forward of step 7", "" if not known
  std::function<void(int rank)> waiting_for;      // the first missing rank, -1 once it has come
  RollCall* roll_call = nullptr;                  // to find who keeps the missing ones waiting
};

// Watches over one operation's waiting. Used by one thread at a time.
class Watch {
 public:
  // names[r] is "rank r (host)".
  Watch(const CommunicatorOptions& options, std::span<const std::string> names, WatchHooks hooks);

  // A new operation starts now.
  void Begin(const Header& header);
  // All ranks have come to it.
  void SetAgreed() { agreed_ = true; }
  bool agreed() const { return agreed_; }

  // To be called a few times a second while waiting for `missing` ranks: reports a stall once, in
  // the log. Throws CommError when one of them is gone, or when the deadline is over since the
  // operation began or, once all have come to it, since it went on last. Time in which this
  // process did not look does not count: who was suspended (scontrol suspend, Ctrl-Z) has not
  // waited, and the others were most likely suspended too. (MPI's own sums and NCCL's count all.)
  void Check(std::span<const int> missing);

  // The waiting that was checked is over: what was awaited has come.
  void EndCheck();
  // The operation goes on, if slowly: somebody's data have come.
  void Progress();

  std::span<const std::string> names() const { return names_; }
  std::string Doing() const { return Describe(header_); }

 private:
  std::string NamesOf(std::span<const int> ranks) const;
  std::vector<int> Blamed(std::span<const int> missing) const;

  const CommunicatorOptions options_;
  const std::vector<std::string> names_;
  const WatchHooks hooks_;
  Header header_;
  std::chrono::steady_clock::time_point start_, last_look_;
  bool agreed_ = false;
  bool warned_ = false;
};

}  // namespace carole::collectives
