#include "src/graph/plan/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nets/nets.h"
#include "src/core/error.h"
#include "src/graph/precision.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/graph_runner.h"
#include "tests/support/sample_graphs.h"
#include "tests/support/text_of.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const RunContext kContext{.seed = 3, .step = 4};

size_t PlainPeak(const Graph& graph) { return PeakBytes(Lifetimes(graph, PlainSchedule(graph))); }

// Checks that a schedule with recomputation gives the same bits of losses, gradients and moving
// statistics. The arena is filled with NaN first, so that a read of memory that was reused too
// early shows.
void ExpectSameBits(const Graph& graph, const Backend& backend, const Schedule& schedule) {
  GraphRunner plain(graph, backend), other(graph, backend, schedule);
  const GraphResult want = plain.Run(kContext);
  other.Poison(kContext);
  const GraphResult got = other.Run(kContext);
  EXPECT_EQ(got.outputs, want.outputs);
  EXPECT_EQ(got.gradients, want.gradients);
  EXPECT_EQ(got.statistics, want.statistics);
}

void ForEachBackend(const std::function<void(const Backend&)>& test) {
  for (const BackendEntry& entry : kBackends) {
    if (entry.name == "onednn" && !OneDnnAvailable()) continue;
    SCOPED_TRACE(entry.name);
    test(*entry.make(1));
  }
}

// A schedule that computes the whole forward pass twice, except nodes that make outputs.
Schedule RecomputeEverything(const Graph& graph) {
  Schedule forward, recomputed, backward;
  for (NodeId n : PlainSchedule(graph)) {
    const Node& node = graph.nodes()[n];
    const bool output = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      return std::find(graph.outputs().begin(), graph.outputs().end(), id) != graph.outputs().end();
    });
    (node.phase == Phase::kForward ? forward : backward).push_back(n);
    if (node.phase == Phase::kForward && !output) recomputed.push_back(n);
  }
  forward.insert(forward.end(), recomputed.begin(), recomputed.end());
  forward.insert(forward.end(), backward.begin(), backward.end());
  return forward;
}

TEST(Recompute, EveryOperationKeepsItsBits) {
  ForEachBackend([](const Backend& backend) {
    for (const SampleGraph& sample : kSampleGraphs) {
      for (bool fuse : {false, true}) {
        SCOPED_TRACE(::testing::Message() << sample.name << (fuse ? ", fused" : ""));
        const auto graph = MakeTraining(sample, DType::kF32, fuse ? &backend : nullptr);
        ExpectSameBits(*graph, backend, RecomputeEverything(*graph));
      }
    }
  });
}

// In bf16 on a GPU, all filters are cast before the first kernel.
TEST(Recompute, EveryOperationKeepsItsBitsInBf16OnAGpu) {
  const auto backend = MakeEmulatedCudaBackend(1);
  backend->SetPrecision(Precision::kBf16);
  for (const SampleGraph& sample : kSampleGraphs) {
    SCOPED_TRACE(sample.name);
    const auto graph = MakeTraining(sample, DType::kF32, backend.get());
    StoreActivationsAs(DType::kBF16, *graph);
    ExpectSameBits(*graph, *backend, RecomputeEverything(*graph));
  }
}

struct NetCase {
  const char* name;
  int64_t image_size;
};

class RecomputedNets : public ::testing::TestWithParam<NetCase> {};

// The nets have dropout and batch norm, branches that are concatenated, drop path, squeeze-excite.
TEST_P(RecomputedNets, KeepTheirBitsAtEachBudget) {
  const NetCase& net = GetParam();
  ForEachBackend([&](const Backend& backend) {
    const nets::Model model = nets::BuildModel(
        nets::FindNet(net.name),
        {.batch_size = 4, .image_size = net.image_size, .num_classes = 4, .training = true});
    Fuse(*model.graph, backend);
    Differentiate(*model.graph);
    const size_t peak = PlainPeak(*model.graph);
    size_t last = peak;
    for (double share : {0.8, 0.0}) {
      const auto budget = static_cast<size_t>(share * static_cast<double>(peak));
      const RecomputePlan plan = PlanRecomputation(*model.graph, backend, budget);
      EXPECT_LT(plan.peak_bytes, last);
      EXPECT_GT(plan.recomputed_fraction, 0);
      last = plan.peak_bytes;
      ExpectSameBits(*model.graph, backend, plan.schedule);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Recompute, RecomputedNets,
                         ::testing::Values(NetCase{"inception_v2", 33},
                                           NetCase{"mobilenet_v3_small", 33},
                                           NetCase{"nasnet_cifar", 16}),
                         [](const auto& info) { return std::string(info.param.name); });

// 416 layers in sequence: a seventh of the memory suffices, for less than one additional forward
// pass.
TEST(Recompute, SavesMostMemoryOfADeepNet) {
  const nets::Model model =
      nets::BuildModel(nets::FindNet("vgg_416"), {.batch_size = 4, .training = true});
  const auto backend = MakeReferenceBackend(1);
  Fuse(*model.graph, *backend);
  Differentiate(*model.graph);
  const size_t peak = PlainPeak(*model.graph);
  const RecomputePlan least = PlanRecomputation(*model.graph, *backend, 0);
  EXPECT_LT(least.peak_bytes, peak / 7);
  EXPECT_LT(least.recomputed_fraction, 1);
  const RecomputePlan half = PlanRecomputation(*model.graph, *backend, peak / 2);
  EXPECT_LE(half.peak_bytes, peak / 2);
  EXPECT_LT(half.recomputed_fraction, 0.5);
  const RecomputePlan all = PlanRecomputation(*model.graph, *backend, peak);
  EXPECT_EQ(all.schedule, PlainSchedule(*model.graph));
  EXPECT_EQ(all.recomputed_fraction, 0);
}

TEST(Recompute, NamesTheSmallestBudgetThatWorks) {
  ForEachBackend([](const Backend& backend) {
    const nets::Model model =
        nets::BuildModel(nets::FindNet("resnet_v1_50"),
                         {.batch_size = 8, .image_size = 97, .num_classes = 4, .training = true});
    Fuse(*model.graph, backend);
    Differentiate(*model.graph);
    const std::string error =
        TextOf<UsageError>([&] { CompileWithin(*model.graph, backend, 1 << 20); });
    EXPECT_THAT(error, AllOf(HasSubstr(Option("activation_memory")),
                             HasSubstr("got 0.00 GiB, want at "
                                       "least "),
                             HasSubstr(Option("batch_size"))));
    const double least = std::stod(error.substr(error.find("least ") + 6));
    const auto bytes = static_cast<size_t>(least * (1 << 30));
    const Plan plan = CompileWithin(*model.graph, backend, bytes);
    EXPECT_LE(plan.statistics.arena_bytes, bytes);
    EXPECT_LT(2 * plan.statistics.arena_bytes,
              Compile(*model.graph, backend).statistics.arena_bytes);
  });
}

// Workspaces make the arena of the first plans a little too large. The next plans must not be the
// smallest one, which recomputes most.
TEST(Recompute, DoesNotFallBackToTheSmallestPlanTooEarly) {
  ForEachBackend([](const Backend& backend) {
    const nets::Model model = nets::BuildModel(
        nets::FindNet("inception_v3"), {.batch_size = 8, .image_size = 139, .training = true});
    Fuse(*model.graph, backend);
    Differentiate(*model.graph);
    const Plan plain = Compile(*model.graph, backend);
    const Plan least = Compile(*model.graph, backend,
                               {.schedule = PlanRecomputation(*model.graph, backend, 0).schedule});
    const auto arena = static_cast<double>(plain.statistics.arena_bytes);
    for (const double share : {0.65, 0.55, 0.5, 0.45}) {
      const auto bytes = static_cast<size_t>(share * arena);
      const Plan plan = CompileWithin(*model.graph, backend, bytes);
      EXPECT_LE(plan.statistics.arena_bytes, bytes);
      EXPECT_NE(plan.ScheduleHash(), least.ScheduleHash()) << share;
      EXPECT_GT(plan.statistics.arena_bytes, least.statistics.arena_bytes) << share;
    }
  });
}

}  // namespace
}  // namespace carole::testing
