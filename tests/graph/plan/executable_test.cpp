#include "src/graph/plan/executable.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/support/node_by_node.h"
#include "tests/support/reference.h"
#include "tests/support/sample_graphs.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The tolerance for sums of a few hundred terms in fp32, compared with double.
constexpr double kFp32 = 2e-4;

void ExpectNear(const std::string& name, const Elements& got, const Elements& want,
                double tolerance) {
  double largest = 1e-3;
  for (double v : want) largest = std::max(largest, std::abs(v));
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * largest) << name << " " << i;
  }
}

void ExpectNear(const GraphResult& got, const GraphResult& want, double tolerance) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  ASSERT_EQ(got.statistics.size(), want.statistics.size());
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    ExpectNear("output " + std::to_string(i), got.outputs[i], want.outputs[i], tolerance);
  }
  for (const auto& [name, values] : want.gradients) {
    ExpectNear("gradient of " + name, got.gradients.at(name), values, tolerance);
  }
  for (const auto& [name, values] : want.statistics) {
    ExpectNear(name, got.statistics.at(name), values, tolerance);
  }
}

// Runs every sample graph, fused and not fused. The Executable, with shared memory, reorders and
// results in place, must give the same results as running one node at a time. Its arena holds NaN
// first.
void ExpectPlanEqualsNodes(const Backend& backend, DType compute, double tolerance) {
  const RunContext context{.seed = 3, .step = 4};
  for (const SampleGraph& sample : kSampleGraphs) {
    const auto oracle = MakeTraining(sample, DType::kF64);
    const GraphResult want = NodeByNode(*oracle, Reference()).Run(context);
    for (bool fuse : {false, true}) {
      SCOPED_TRACE(::testing::Message() << sample.name << (fuse ? ", fused" : ""));
      const auto graph = MakeTraining(sample, compute, fuse ? &backend : nullptr);
      GraphRunner runner(*graph, backend);
      runner.Poison(context);
      ExpectNear(runner.Run(context), want, tolerance);
    }
  }
}

TEST(Executable, PlanEqualsNodeByNodeInDouble) {
  ExpectPlanEqualsNodes(Reference(), DType::kF64, 1e-12);
}

TEST(Executable, PlanEqualsNodeByNodeInFp32) {
  ExpectPlanEqualsNodes(Reference(), DType::kF32, kFp32);
}

TEST(Executable, PlanOfOneDnnEqualsNodeByNode) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  ExpectPlanEqualsNodes(*MakeOneDnnBackend(1), DType::kF32, kFp32);
}

TEST(Executable, InputsAreKeptBetweenRuns) {
  for (const SampleGraph& sample : kSampleGraphs) {
    SCOPED_TRACE(sample.name);
    const auto graph = MakeTraining(sample, DType::kF64);
    GraphRunner runner(*graph, Reference());
    const GraphResult first = runner.Run();
    runner.SetVariables();  // moving statistics
    const GraphResult second = runner.Run();
    EXPECT_EQ(first.outputs, second.outputs);
    EXPECT_EQ(first.gradients, second.gradients);
  }
}

TEST(Executable, UnreadInputsHaveMemory) {
  Graph g;
  Sketch s(g);
  const ValueId x = g.AddInput("x", {2, 3}, DType::kF32);
  g.AddInput("unused", {100}, DType::kF32);
  g.MarkOutput(s.Relu(x));
  GraphRunner runner(g, Reference());
  runner.SetInput("unused", Elements(100, 7.0));
  runner.SetInput("x", {-1, 2, -3, 4, -5, 6});
  EXPECT_EQ(runner.Run().outputs[0], (Elements{0, 2, 0, 4, 0, 6}));
  EXPECT_EQ(runner.executable().Input("unused").as<float>()[99], 7);
  EXPECT_THAT([&] { runner.executable().Input("nonsense"); },
              ThrowsMessage<InternalError>(HasSubstr("no input has the name nonsense")));
}

// Layouts are blocked inside; Output() returns NHWC.
TEST(Executable, OutputsComeInPlainOrder) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  Graph g;
  Sketch s(g);
  const ValueId x = g.AddInput("x", {1, 2, 2, 2}, DType::kF32);
  const ValueId y = s.Conv(x, "conv", 20, 1);
  g.MarkOutput(x);
  g.MarkOutput(y);
  const auto backend = MakeOneDnnBackend(1);
  GraphRunner runner(g, *backend);
  Elements image(8), filter(40, 0.0);  // filter (1,1,2,20): output k is channel k % 2 times (k + 1)
  for (int i = 0; i < 8; ++i) image[i] = i + 1;
  for (int k = 0; k < 20; ++k) filter[(k % 2) * 20 + k] = k + 1;
  runner.SetInput("x", image);
  runner.SetVariable("conv/weights", filter);
  const GraphResult result = runner.Run();
  EXPECT_EQ(result.outputs[0], image);
  for (int pixel = 0; pixel < 4; ++pixel) {
    for (int k = 0; k < 20; ++k) {
      EXPECT_EQ(result.outputs[1][pixel * 20 + k], image[pixel * 2 + k % 2] * (k + 1));
    }
  }
}

TEST(Executable, IntegerOutputsKeepTheirValues) {
  Graph g;
  Sketch s(g);
  s.Head(s.Linear(g.AddInput("x", {4, 2}, DType::kF32), "a", 2));
  g.MarkOutput(g.input("labels"));
  EXPECT_EQ(GraphRunner(g, Reference()).Run().outputs[1], (Elements{0, 1, 2, 0}));
}

TEST(Executable, GradientsBecomeReadyOnceAndInOrder) {
  const auto graph = MakeTraining(kSampleGraphs[0], DType::kF32);
  GraphRunner runner(*graph, Reference());
  std::vector<int> ready;
  runner.executable().Run({}, [&](int i) { ready.push_back(i); });
  std::vector<int> ascending(runner.store().ready_order().size());
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<int>(i);
  EXPECT_EQ(ready, ascending);
  int with_gradient = 0;
  for (const Variable& v : graph->variables()) with_gradient += v.gradient != kNone;
  EXPECT_EQ(static_cast<int>(ready.size()), with_gradient);
  EXPECT_EQ(runner.store().variables()[runner.store().ready_order()[0]].name.substr(0, 4), "head");
}

// A gradient is final when the callback is called: nothing writes it later.
TEST(Executable, ReadyGradientsDoNotChange) {
  const auto graph = MakeTraining(kSampleGraphs[4], DType::kF64);
  GraphRunner runner(*graph, Reference());
  VariableStore& store = runner.store();
  std::vector<Elements> seen;
  auto read = [&](int i) {
    const VariableSlice& p = store.variables()[store.ready_order()[i]];
    const auto all = store.gradients<double>().subspan(p.offset, p.count);
    return Elements(all.begin(), all.end());
  };
  runner.executable().Run({}, [&](int i) { seen.push_back(read(i)); });
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(read(static_cast<int>(i)), seen[i]);
}

// Training and evaluation are two Executables with the same weights and statistics.
void ExpectSharedStore(const Backend& backend) {
  auto build = [](Graph& g, bool training) {
    Sketch s(g);
    ValueId y = s.Conv(g.AddInput("images", {2, 3, 8, 8}, DType::kF32), "conv", 20, 3);
    y = s.Relu(s.BatchNorm(y, "norm", {.decay = 0.5, .training = training}));
    s.Head(y);
    if (training) Differentiate(g);
  };
  Graph train, eval;
  build(train, true);
  build(eval, false);
  GraphRunner runner(train, backend);
  Executable evaluation(Compile(eval, backend, {.share_layouts_of = &runner.store()}));
  evaluation.Bind(runner.store());
  for (const char* name : {"images", "weights", "labels"}) {
    Fill(evaluation.Input(name), InputElements(eval.value(eval.input(name))));
  }
  auto loss = [&] {
    evaluation.Run({});
    return evaluation.Output(eval.outputs()[0])[0];
  };
  const double before = loss();
  runner.Run();  // updates the moving statistics
  EXPECT_NE(loss(), before);
  runner.SetVariables();
  EXPECT_EQ(loss(), before);
}

TEST(Executable, EvaluationSharesTheStoreOfTraining) {
  ExpectSharedStore(Reference());
  if (OneDnnAvailable()) ExpectSharedStore(*MakeOneDnnBackend(1));
}

TEST(Executable, RefusesAStoreOfAnotherNet) {
  Graph a, b;
  Sketch s(a), t(b);
  s.Head(s.Linear(a.AddInput("x", {2, 4}, DType::kF32), "one", 3));
  t.Head(t.Linear(b.AddInput("x", {2, 4}, DType::kF32), "two", 3));
  Executable first(Compile(a, Reference())), second(Compile(b, Reference()));
  const auto store = first.MakeStore();
  EXPECT_THAT([&] { second.Bind(*store); },
              ThrowsMessage<InternalError>(HasSubstr("the store has no variable two/weights")));
  EXPECT_THAT([&] { first.Run({}); }, ThrowsMessage<InternalError>(HasSubstr("before Bind()")));
}

TEST(Executable, ValuesThatWereFusedAwayCannotBeRead) {
  Graph g;
  Sketch s(g);
  const ValueId norm = s.BatchNorm(g.AddInput("x", {2, 3}, DType::kF32), "norm");
  g.MarkOutput(s.Relu(norm));
  Fuse(g, Reference());
  GraphRunner runner(g, Reference());
  EXPECT_THAT([&] { runner.executable().Output(norm); },
              ThrowsMessage<InternalError>(HasSubstr("was not computed")));
}

TEST(Executable, CountsAndTimesItsSteps) {
  const auto graph = MakeTraining(kSampleGraphs[0], DType::kF32, &Reference());
  GraphRunner runner(*graph, Reference());
  Executable& e = runner.executable();
  e.Run({});
  e.Run({});
  int64_t runs = 0;
  for (const OpTime& t : e.Times()) runs += t.runs;
  EXPECT_EQ(runs, 2 * e.plan().statistics.kernels);
  EXPECT_GT(e.PhaseMilliseconds(Phase::kForward), 0);
  EXPECT_GT(e.PhaseMilliseconds(Phase::kBackward), 0);
  e.ResetTimes();
  EXPECT_EQ(e.PhaseMilliseconds(Phase::kBackward), 0);
  EXPECT_LE(e.plan().statistics.peak_live_bytes, e.plan().statistics.arena_bytes);
}

TEST(Executable, DescribesItsPlan) {
  const auto graph = MakeTraining(kSampleGraphs[0], DType::kF32, &Reference());
  const Executable e(Compile(*graph, Reference()));
  const std::string text = e.Describe();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), e.plan().statistics.kernels);
  EXPECT_THAT(text, HasSubstr("ms  conv2d                   root "));
  EXPECT_THAT(text, HasSubstr("[4,3,12,12] nhwc fp32 [16,3,3,3] filter fp32 - - -> "
                              "[4,16,6,6] nhwc fp32\n"));
}

}  // namespace
}  // namespace carole::testing
