// Collectives among processes:
//   mpirun -np N carole_mpi_collectives CASE [ranks_per_host [deadline]]
// Exit code 0 means that every rank is content; the faults' cases end as a real job would, and
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

void SumWith(Communicator& c, const std::string& algorithm) {
  c.SetAllReduce(algorithm);
  CheckAllCounts(c);
  CheckInFlight(c);
  CheckReducer<float>(c);
  CheckReducer<double>(c);
}

void Mismatch(Communicator& c) {
  std::vector<float> data(c.rank() == 1 ? 99 : 100);
  c.AllReduce(data, {.what = "gradients"});
}

// After a few good steps rank `culprit` does `fault` between two buckets.
void Fault(Communicator& c, const std::function<void()>& fault, int culprit = 1) {
  const auto arena = c.AllocateArena(4 << 20);
  const std::span<float> data(reinterpret_cast<float*>(arena->data()), 1 << 20);
  for (int step = 0; step < 1000; ++step) {
    c.AllReduce(data.subspan(0, 1000), {.what = "gradients", .step = step, .bucket = 0});
    if (step == 20 && c.rank() == culprit) fault();
    c.AllReduce(data, {.what = "gradients", .step = step, .bucket = 1});
  }
}

// Rank 1 freezes in the middle of a sum.
void FreezeInside(Communicator& c) {
  c.SetAllReduce("ring");
  Fault(c, [] {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the sum takes some 10 ms
      raise(SIGSTOP);
    }).detach();
  });
}

// The same where MPI sums, which tells nobody and waits forever: 256 MB take some 50 ms or more.
void FreezeInsideMpi(Communicator& c) {
  c.SetAllReduce("mpi");
  std::vector<float> data(64 << 20);
  c.AllReduce(data, {.what = "gradients"});
  if (c.rank() == 1) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
      raise(SIGSTOP);
    }).detach();
  }
  c.AllReduce(data, {.what = "gradients", .step = 1});
}

// Rank 1 freezes while it waits for rank 0, which comes then.
void FreezeWaiting(Communicator& c) {
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

// Sums that are checked in every step; rank 0 says that it has begun.
void Steps(Communicator& c, int num_steps) {
  std::vector<float> data(100'000);
  for (int step = 0; step < num_steps; ++step) {
    CheckAllReduce<float>(c, data);
    if (step == 0 && c.rank() == 0) {
      fmt::print("step 0\n");
      std::fflush(stdout);
    }
  }
}

// 24 MB, which a slow link takes longer for than a deadline.
void Large(Communicator& c) {
  c.SetAllReduce("ring");
  std::vector<float> data(6'000'000);
  CheckAllReduce<float>(c, data);
}

const std::map<std::string, void (*)(Communicator&)> kCases = {
    {"ring", [](Communicator& c) { SumWith(c, "ring"); }},
    {"shared_memory", [](Communicator& c) { SumWith(c, "shared_memory"); }},
    {"tree", [](Communicator& c) { SumWith(c, "tree"); }},
    {"auto", [](Communicator& c) { SumWith(c, "auto"); }},
    {"bf16", CheckBf16},
    {"hierarchical", [](Communicator& c) { SumWith(c, "hierarchical"); }},
    {"mpi",
     [](Communicator& c) {
       // One process without a launcher has no MPI.
       if (c.size() > 1) SumWith(c, "mpi");
     }},
    {"gather", CheckGatherAndBroadcast},
    {"steps", [](Communicator& c) { Steps(c, 30); }},
    {"endless", [](Communicator& c) { Steps(c, std::numeric_limits<int>::max()); }},
    {"large", Large},
    {"mismatch", Mismatch},
    {"freeze", [](Communicator& c) { Fault(c, [] { raise(SIGSTOP); }); }},
    {"freeze_inside", FreezeInside},
    {"freeze_inside_mpi", FreezeInsideMpi},
    {"freeze_waiting", FreezeWaiting},
    {"freeze_last",
     [](Communicator& c) {
       Fault(
           c, [] { raise(SIGSTOP); }, c.size() - 1);
     }},
    {"kill", [](Communicator& c) { Fault(c, [] { raise(SIGKILL); }); }},
    {"throw",
     [](Communicator& c) { Fault(c, [] { throw DataError("[test] rank 1: bad data"); }); }},
    {"quit", [](Communicator& c) { Fault(c, [] { std::_Exit(3); }); }},
};

// As main() of carole does it: the communicator outlives the error, which ends the job everywhere.
int Main(int argc, char** argv) {
  const auto c = collectives::MakeMpiCommunicator(
      {.warn_seconds = 1,
       .deadline_seconds = argc > 3 ? std::atof(argv[3]) : 60,
       .wire_dtype = std::string_view(argv[1]) == "bf16" ? "bf16" : "fp32",
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
