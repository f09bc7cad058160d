// Tests Executables with 16-bit activations, compared with the same in fp32.
#include "src/graph/precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nets/nets.h"
#include "src/backend/host/backend.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/graph_runner.h"
#include "tests/support/precision_problem.h"
#include "tests/support/sample_graphs.h"

namespace carole::testing {
namespace {

// The cosine of the angle between two gradients, with all variables as one vector. 1 means the same
// direction.
double Cosine(const GraphResult& a, const GraphResult& b) {
  double ab = 0, aa = 0, bb = 0;
  for (const auto& [name, values] : a.gradients) {
    const Elements& others = b.gradients.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      ab += values[i] * others[i];
      aa += values[i] * values[i];
      bb += others[i] * others[i];
    }
  }
  return ab / std::sqrt(aa * bb);
}

void ExpectNear(const Elements& got, const Elements& want, double tolerance) {
  double largest = 0;
  for (double v : want) largest = std::max(largest, std::abs(v));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance * largest) << i;
}

struct Row {
  std::string_view backend;
  Precision precision;
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.backend << " in " << Name(row.precision);
}

class MixedPrecision : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (GetParam().backend == "onednn" && !OneDnnAvailable())
      GTEST_SKIP() << "skipped: built without oneDNN";
    for (const BackendEntry& entry : kBackends) {
      if (entry.name != GetParam().backend) continue;
      wide_ = entry.make(2);
      narrow_ = entry.make(2);
    }
    if (GetParam().backend == "emulated_cuda") {
      wide_ = MakeEmulatedCudaBackend(2);
      narrow_ = MakeEmulatedCudaBackend(2);
    }
    const std::string problem = PrecisionProblem(GetParam().precision, *narrow_);
    if (!problem.empty()) GTEST_SKIP() << "skipped: " << problem;
  }

  std::unique_ptr<Backend> wide_, narrow_;
};

// bf16 has 8 bits, so the relative error of one rounding is 2^-9, and about ten follow each other.
// fp16 has more bits.
TEST_P(MixedPrecision, SampleGraphsAreNearFp32) {
  const RunContext context{.seed = 3, .step = 4};
  for (const SampleGraph& sample : kSampleGraphs) {
    SCOPED_TRACE(sample.name);
    const auto run = [&](const Backend& backend) {
      const auto graph = MakeTraining(sample, DType::kF32, &backend);
      StoreActivationsAs(backend.activation_dtype(), *graph);
      GraphRunner runner(*graph, backend);
      runner.Poison(context);
      return runner.Run(context);
    };
    const GraphResult want = run(*wide_), got = run(*narrow_);
    ASSERT_EQ(got.outputs.size(), want.outputs.size());
    for (size_t i = 0; i < want.outputs.size(); ++i)
      ExpectNear(got.outputs[i], want.outputs[i], 0.03);
    for (const auto& [name, values] : want.statistics)
      ExpectNear(got.statistics.at(name), values, 0.03);
    EXPECT_GT(Cosine(got, want), 0.995);
    EXPECT_NE(got.gradients, want.gradients) << "nothing was rounded";
  }
}

// A net with its backward graph, and a runner for it.
struct Training {
  Training(const std::string& name, int64_t image_size, const Backend& backend)
      : model(nets::BuildModel(
            nets::FindNet(name),
            {.batch_size = 4, .image_size = image_size, .num_classes = 10, .training = true})) {
    Fuse(*model.graph, backend);
    Differentiate(*model.graph);
    StoreActivationsAs(backend.activation_dtype(), *model.graph);
    runner = std::make_unique<GraphRunner>(*model.graph, backend);
    runner->store().Initialize(1);
  }

  nets::Model model;
  std::unique_ptr<GraphRunner> runner;
};

class Bf16Nets : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
    wide_ = MakeOneDnnBackend(2);
    narrow_ = MakeOneDnnBackend(2);
    const std::string problem = PrecisionProblem(Precision::kBf16, *narrow_);
    if (!problem.empty()) GTEST_SKIP() << "skipped: " << problem;
  }

  std::unique_ptr<Backend> wide_, narrow_;
};

// Deep nets with initial weights cannot be compared in this way. Rounding only the weights of
// resnet_v1_50 turns its fp32 gradient by more than 60 degrees.
TEST_F(Bf16Nets, GradientOfLeNetIsNearFp32) {
  Training wide("lenet", 28, *wide_), narrow("lenet", 28, *narrow_);
  const GraphResult want = wide.runner->Run({.seed = 1}), got = narrow.runner->Run({.seed = 1});
  EXPECT_NEAR(got.outputs[0][0], want.outputs[0][0], 0.01 * want.outputs[0][0]);
  EXPECT_GT(Cosine(got, want), 0.995);
}

// It is not exactly half, because the arena also holds pool indices, images and bf16 copies of
// weights.
TEST_F(Bf16Nets, ActivationsTakeAboutHalf) {
  const auto arena = [](const Backend& backend) {
    const Training training("mobilenet_v2", 96, backend);
    return static_cast<double>(training.runner->executable().plan().statistics.arena_bytes);
  };
  EXPECT_LT(arena(*narrow_), 0.6 * arena(*wide_));
}

// A kernel that has layouts and does nothing. UseNhwcFilters() gives filters cuDNN's layout.
class PlannedKernel : public Kernel {
 public:
  PlannedKernel() = default;
  explicit PlannedKernel(const Kernel& kernel) {
    input_layouts_ = kernel.input_layouts();
    output_layouts_ = kernel.output_layouts();
  }
  void UseNhwcFilters() {
    for (auto* layouts : {&input_layouts_, &output_layouts_})
      std::ranges::replace(*layouts, Layout::Filter(), Layout::Nhwc());
  }
  void Bind(const KernelMemory&) override {}
  void Run(const RunContext&) override {}
};

// A bf16 backend whose Executables are only inspected, never run.
class NhwcFilterBackend : public host::HostBackend {
 public:
  explicit NhwcFilterBackend(bool has_casts = false) : HostBackend(1), has_casts_(has_casts) {
    activation_dtype_ = DType::kBF16;
  }
  std::string_view name() const override { return "nhwc_filters"; }
  bool Supports(const OpSpec& spec) const override {
    return spec.kind == op::kCasts ? has_casts_ : kernels_->Supports(spec);
  }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    if (spec.kind == op::kCasts) return std::make_unique<PlannedKernel>();
    auto kernel = std::make_unique<PlannedKernel>(*kernels_->MakeKernel(spec));
    if (spec.kind == op::kConv2d || spec.kind == op::kConv2dBackwardData ||
        spec.kind == op::kConv2dBackwardFilter)
      kernel->UseNhwcFilters();
    return kernel;
  }

 private:
  const bool has_casts_;
  const std::unique_ptr<Backend> kernels_ = MakeReferenceBackend(1);
};

// Each filter is cast once, without reorder. Its gradient is written directly to the arena.
TEST(WeightCasts, WeightsGetTheLayoutOfTheir16BitReaders) {
  const NhwcFilterBackend backend;
  const auto graph = MakeTraining(kSampleGraphs[0], DType::kF32, &backend);
  StoreActivationsAs(backend.activation_dtype(), *graph);
  const Executable executable(Compile(*graph, backend));
  const auto store = executable.MakeStore();
  int filters = 0;
  for (const VariableSlice& variable : store->variables()) {
    if (variable.shape.rank() == 4) {
      EXPECT_EQ(variable.layout, Layout::Nhwc()) << variable.name;
    }
    filters += variable.shape.rank() >= 2;
  }
  EXPECT_EQ(executable.plan().statistics.weight_reorders, filters) << executable.Describe();
}

// How often `word` occurs in `text`.
int64_t Count(const std::string& text, const std::string& word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// If the backend supports it, all weights are cast at once before everything else, also for nodes
// that are recomputed. Gradients of filters are cast in batches of 8 MiB.
TEST(WeightCasts, AreBatched) {
  const NhwcFilterBackend backend(true), one_by_one(false);
  const nets::Model model = nets::BuildModel(nets::FindNet("resnet_v1_50"),
                                             {.batch_size = 2, .image_size = 64, .training = true});
  Fuse(*model.graph, backend);
  Differentiate(*model.graph);
  StoreActivationsAs(backend.activation_dtype(), *model.graph);
  Schedule plain = PlainSchedule(*model.graph), twice;
  for (NodeId n : plain) {  // recompute convolutions at the start of backward
    if (model.graph->nodes()[n].phase != Phase::kForward) break;
    if (model.graph->nodes()[n].kind == op::kConv2d) twice.push_back(n);
  }
  const auto backward = std::find_if(plain.begin(), plain.end(), [&](NodeId n) {
    return model.graph->nodes()[n].phase != Phase::kForward;
  });
  twice.insert(twice.begin(), plain.begin(), backward);
  twice.insert(twice.end(), backward, plain.end());
  constexpr int64_t kActivations = 2;  // the image, and the logits for the loss
  for (const Schedule& schedule : {plain, twice}) {
    const Executable batched(Compile(*model.graph, backend, {.schedule = schedule}));
    const std::string plan = batched.Describe();
    EXPECT_EQ(Count(plan, "ms  casts "), 1 + 11) << plan;
    EXPECT_EQ(plan.find(" casts "), plan.find("ms") + 3) << plan;
    EXPECT_EQ(Count(plan, "ms  reorder "), kActivations) << plan;
    const Executable others(Compile(*model.graph, one_by_one, {.schedule = schedule}));
    EXPECT_EQ(Count(others.Describe(), "ms  reorder "),
              kActivations + (schedule == plain ? 54 : 108));
    EXPECT_EQ(batched.plan().ScheduleHash(), others.plan().ScheduleHash());
    // Each gradient is made once, possibly later.
    auto got = batched.plan().ready_order, want = others.plan().ready_order;
    std::ranges::sort(got);
    std::ranges::sort(want);
    EXPECT_EQ(got, want);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, MixedPrecision,
    ::testing::Values(Row{"onednn", Precision::kBf16}, Row{"reference", Precision::kBf16},
                      Row{"reference", Precision::kFp16}, Row{"emulated_cuda", Precision::kBf16},
                      Row{"emulated_cuda", Precision::kFp16}),
    [](const auto& info) {
      return std::string(info.param.backend) + "_" + std::string(Name(info.param.precision));
    });

}  // namespace
}  // namespace carole::testing
