// Cross-checks of gradients among processes:
//   mpirun -np N carole_mpi_cross_check good|flip|broken [ranks_per_host]
// Trains LeNet twice: without checks, and with a check every second step. Exit code 0 means that
// all ranks end with the same weights both times.
//   good    nothing is wrong
//   flip    one bit of rank 1's gradients flips in one step
//   broken  it flips each time that this step is computed, so the job ends as a real one would
#include <fmt/core.h>

#include <bit>
#include <cstdlib>
#include <string_view>

#include "collectives/mpi/communicator.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/train/step/gradient_hook.h"
#include "tests/train/training.h"

namespace carole::testing {
namespace {

constexpr int64_t kSteps = 20, kBadStep = 11, kCheckEvery = 2;

// Flips a bit in the first `count` computations of the bad step.
train::GradientHook FlipBits(int count) {
  return [count](VariableStore& store, int variable, int64_t step) mutable {
    if (step != kBadStep || variable != store.ready_order()[0] || count-- <= 0) return;
    const auto offset = static_cast<size_t>(store.variables()[variable].offset);
    float& value = store.gradients<float>()[offset];
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1U << 20);
  };
}

std::vector<double> Train(collectives::FullCommunicator& c, int64_t cross_check_every) {
  constexpr int64_t kRows = 8;
  const auto backend = OneDnnAvailable() ? MakeOneDnnBackend(1) : MakeReferenceBackend(1);
  nets::Model model =
      nets::BuildModel(nets::FindNet("lenet"), {.batch_size = kRows, .training = true});
  train::TrainStep step(
      std::move(model.graph), *backend, c,
      {.optimizer = "momentum", .audit_every_n_steps = 1, .cross_check_every = cross_check_every});
  step.store().Initialize(7);
  FormulaSource source({.pixels = 28 * 28,
                        .local_batch = kRows,
                        .num_samples = 100,
                        .rank = c.rank(),
                        .size = c.size()});
  for (int64_t s = 0; s < kSteps; ++s)
    step.Run(*source.Next(), {.step = s, .seed = 3, .learning_rate = 0.01});
  return AllWeights(step.store());
}

int Run(collectives::FullCommunicator& c, std::string_view kind) {
  const std::vector<double> undisturbed = Train(c, 0);
  const int flips = kind == "broken" ? 1000 : kind == "flip" ? 1 : 0;
  if (c.rank() == 1) train::SetGradientHook(FlipBits(flips));
  const bool is_same = Train(c, kCheckEvery) == undisturbed;
  const int num_same = collectives::CountRanks(c, is_same, {.what = "same weights"});
  if (c.rank() == 0) fmt::print("{} of {} ranks have the same weights\n", num_same, c.size());
  return num_same == c.size() ? 0 : 1;
}

int Main(std::string_view kind, int ranks_per_host) {
  const auto c =
      collectives::MakeMpiCommunicator({.deadline_seconds = 600, .ranks_per_host = ranks_per_host});
  SetLogRank(c->rank(), c->size());
  try {
    return Run(*c, kind);
  } catch (const Error& error) {
    LogError("", "{}", error.what());
    c->Abort(static_cast<int>(error.code()));
  }
  return 1;
}

}  // namespace
}  // namespace carole::testing

int main(int argc, char** argv) {
  return carole::testing::Main(argc > 1 ? argv[1] : "good", argc > 2 ? std::atoi(argv[2]) : 0);
}
