// Reproducible training among processes:
//   mpirun -np N carole_mpi_reproducible [ranks_per_host]
// Trains on all ranks, then on rank 0 alone, and compares the weights bit by bit. Exit code 0 means
// that they are equal.
#include "src/train/reduction/reproducible.h"

#include <fmt/core.h>

#include <cstdlib>

#include "collectives/local/communicator.h"
#include "collectives/mpi/communicator.h"
#include "tests/train/training.h"

namespace carole::testing {
namespace {

constexpr int64_t kGlobalBatch = 16, kShards = 8, kSteps = 100;

struct Case {
  const char* name;
  int64_t pixels;
  std::unique_ptr<Graph> (*graph)(int64_t rows);
};

const Case kCases[] = {
    {"small net with batch norm", kSmallImage* kSmallImage,
     [](int64_t rows) { return std::move(SmallNet(rows, true).graph); }},
    {"lenet", 28 * 28,
     [](int64_t rows) {
       return std::move(
           nets::BuildModel(nets::FindNet("lenet"), {.batch_size = rows, .training = true}).graph);
     }},
};

std::vector<double> Train(collectives::FullCommunicator& c, const Case& test) {
  const train::Shards shards = train::SplitIntoShards(kGlobalBatch / c.size(), c.size(), kShards);
  const auto backend = OneDnnAvailable() ? MakeOneDnnBackend(1) : MakeReferenceBackend(1);
  train::TrainStep step(test.graph(shards.rows), *backend, c,
                        {.optimizer = "momentum",
                         .accumulation_steps = shards.per_rank,
                         .reproducible = true,
                         .audit_every_n_steps = 20});
  step.store().Initialize(7);
  FormulaSource source({.pixels = test.pixels,
                        .local_batch = shards.rows * shards.per_rank,
                        .num_samples = 44,
                        .rank = c.rank(),
                        .size = c.size()});
  for (int64_t s = 0; s < kSteps; ++s)
    step.Run(*source.Next(), {.step = s, .seed = 3, .learning_rate = 0.01});
  return AllWeights(step.store());
}

int Main(int ranks_per_host) {
  const auto c =
      collectives::MakeMpiCommunicator({.deadline_seconds = 600, .ranks_per_host = ranks_per_host});
  int different = 0;
  for (const Case& test : kCases) {
    const std::vector<double> together = Train(*c, test);
    if (c->rank() != 0) continue;
    const auto alone = collectives::MakeLocalCommunicators(1, {});
    const bool same = Train(*alone.front(), test) == together;
    fmt::print("{}: {} ranks and one: {}\n", test.name, c->size(), same ? "same" : "different");
    different += same ? 0 : 1;
  }
  c->Barrier({.what = "end"});
  return different;
}

}  // namespace
}  // namespace carole::testing

int main(int argc, char** argv) { return carole::testing::Main(argc > 1 ? std::atoi(argv[1]) : 0); }
