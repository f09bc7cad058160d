// Collectives among processes:
//   mpirun -np N carole_mpi_collectives CASE [ranks_per_host [deadline]]
// Exit code 0 means that all ranks passed. Cases with faults end as a real job would;
// tests/mpi/CMakeLists.txt says how.
#include <fmt/core.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/mpi/communicator.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "tests/support/collective_cases.h"

namespace carole::testing {
namespace {

using collectives::AllReduceAlgorithm;
using collectives::FullCommunicator;

void CheckAlgorithm(FullCommunicator& c, AllReduceAlgorithm algorithm) {
  c.SetAllReduce(algorithm);
  CheckAllCounts(c);
  CheckInFlight(c);
  CheckReducer<float>(c);
  CheckReducer<double>(c);
}

void Mismatch(FullCommunicator& c) {
  std::vector<float> data(c.rank() == 1 ? 99 : 100);
  c.AllReduce(data, {.what = "gradients"});
}

// Runs all-reduces. After 20 good steps, rank `faulty_rank` runs `fault` between two buckets.
void RunWithFault(FullCommunicator& c, const std::function<void()>& fault, int faulty_rank = 1) {
  const auto arena = c.AllocateArena(4 << 20);
  const std::span<float> data(reinterpret_cast<float*>(arena->data()), 1 << 20);
  for (int step = 0; step < 1000; ++step) {
    c.AllReduce(data.subspan(0, 1000), {.what = "gradients", .step = step, .bucket = 0});
    if (step == 20 && c.rank() == faulty_rank) fault();
    c.AllReduce(data, {.what = "gradients", .step = step, .bucket = 1});
  }
}

// Rank 1 freezes in the middle of an all-reduce.
void FreezeInside(FullCommunicator& c) {
  c.SetAllReduce(AllReduceAlgorithm::kRing);
  RunWithFault(c, [] {
    std::thread([] {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(2));  // the all-reduce takes about 10 ms
      raise(SIGSTOP);
    }).detach();
  });
}

// Rank 1 freezes in the middle of MPI's own all-reduce, which reports nothing and waits forever.
// 256 MB take at least about 50 ms.
void FreezeInsideMpi(FullCommunicator& c) {
  c.SetAllReduce(AllReduceAlgorithm::kMpi);
  std::vector<float> data(64 << 20);
  c.AllReduce(data, {.what = "gradients"});
  if (c.rank() == 1) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
      raise(SIGSTOP);
    }).detach();
  }
  for (int step = 1;; ++step) c.AllReduce(data, {.what = "gradients", .step = step});
}

// Rank 1 freezes while it waits for rank 0, which arrives later.
void FreezeWaiting(FullCommunicator& c) {
  if (c.rank() == 1) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      raise(SIGSTOP);
    }).detach();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
  }
  std::vector<float> data(1000);
  for (;;) CheckAllReduce<float>(c, data);
}

// Runs all-reduces and checks each. Rank 0 prints a line after the first.
void RunSteps(FullCommunicator& c, int num_steps) {
  std::vector<float> data(100'000);
  for (int step = 0; step < num_steps; ++step) {
    CheckAllReduce<float>(c, data);
    if (step == 0 && c.rank() == 0) {
      fmt::print("step 0\n");
      std::fflush(stdout);
    }
  }
}

// 24 MB, for which a slow link takes longer than the deadline.
void LargeAllReduce(FullCommunicator& c) {
  c.SetAllReduce(AllReduceAlgorithm::kRing);
  std::vector<float> data(6'000'000);
  CheckAllReduce<float>(c, data);
}

const std::map<std::string, std::function<void(FullCommunicator&)>> kCases = {
    {"ring", [](FullCommunicator& c) { CheckAlgorithm(c, AllReduceAlgorithm::kRing); }},
    {"shared_memory",
     [](FullCommunicator& c) { CheckAlgorithm(c, AllReduceAlgorithm::kSharedMemory); }},
    {"tree", [](FullCommunicator& c) { CheckAlgorithm(c, AllReduceAlgorithm::kTree); }},
    {"auto", [](FullCommunicator& c) { CheckAlgorithm(c, AllReduceAlgorithm::kAuto); }},
    {"bf16", CheckBf16},
    {"hierarchical",
     [](FullCommunicator& c) { CheckAlgorithm(c, AllReduceAlgorithm::kHierarchical); }},
    {"mpi",
     [](FullCommunicator& c) {
       // One process without a launcher has no MPI.
       if (c.size() > 1) CheckAlgorithm(c, AllReduceAlgorithm::kMpi);
     }},
    {"gather", CheckGatherAndBroadcast},
    {"steps", [](FullCommunicator& c) { RunSteps(c, 30); }},
    {"endless", [](FullCommunicator& c) { RunSteps(c, std::numeric_limits<int>::max()); }},
    {"large", LargeAllReduce},
    {"mismatch", Mismatch},
    {"freeze", [](FullCommunicator& c) { RunWithFault(c, [] { raise(SIGSTOP); }); }},
    {"freeze_inside", FreezeInside},
    {"freeze_inside_mpi", FreezeInsideMpi},
    {"freeze_waiting", FreezeWaiting},
    {"freeze_last",
     [](FullCommunicator& c) {
       RunWithFault(
           c, [] { raise(SIGSTOP); }, c.size() - 1);
     }},
    {"kill", [](FullCommunicator& c) { RunWithFault(c, [] { raise(SIGKILL); }); }},
    {"throw",
     [](FullCommunicator& c) {
       RunWithFault(c, [] { throw DataError("[test] rank 1: bad data"); });
     }},
    {"quit", [](FullCommunicator& c) { RunWithFault(c, [] { std::_Exit(3); }); }},
};

// Handles errors like main() of carole: the communicator outlives the error and aborts the job on
// all ranks.
int Main(int argc, char** argv) {
  const auto c = collectives::MakeMpiCommunicator(
      {.warn_seconds = 1,
       .deadline_seconds = argc > 3 ? std::atof(argv[3]) : 60,
       .wire_dtype = std::string_view(argv[1]) == "bf16" ? DType::kBF16 : DType::kF32,
       .ranks_per_host = argc > 2 ? std::atoi(argv[2]) : 0});
  try {
    kCases.at(argv[1])(*c);
    return 0;
  } catch (const Error& error) {
    LogError("", "{}", error.what());
    c->Abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    LogError("", "{}", error.what());
    c->Abort(1);
  }
  return 1;
}

}  // namespace
}  // namespace carole::testing

int main(int argc, char** argv) {
  try {
    return carole::testing::Main(argc, argv);
  } catch (const carole::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
