// Tests plans without running them.
#include "src/graph/plan/compiler.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "src/core/error.h"
#include "src/graph/precision.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/reference.h"
#include "tests/support/sample_graphs.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Checks that each step reads only blocks that live at this step and have been written, or that are
// inputs of the graph. Checks that blocks which live at the same time do not overlap.
void ExpectValid(const Plan& plan) {
  std::vector<bool> is_written(plan.blocks.size(), false);
  for (ValueId id = 0; id < plan.graph.num_values(); ++id) {
    if (const int block = plan.BlockOf(plan.primary[id]);
        block >= 0 && plan.graph.value(id).producer == kNone)
      is_written[block] = true;
  }
  const std::vector<const PlanStep*> steps = plan.AllSteps();
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    SCOPED_TRACE(::testing::Message() << "step " << s << ", " << steps[s]->name);
    const auto expect_live = [&](int block) {
      EXPECT_LE(plan.blocks[block].first_step, s);
      EXPECT_GE(plan.blocks[block].last_step, s);
    };
    for (const int input : steps[s]->inputs) {
      const int block = plan.BlockOf(input);
      if (block < 0) continue;
      expect_live(block);
      EXPECT_TRUE(is_written[block]);
    }
    if (steps[s]->workspace >= 0) expect_live(steps[s]->workspace);
    for (const int output : steps[s]->outputs) {
      const int block = plan.BlockOf(output);
      if (block < 0) continue;
      expect_live(block);
      is_written[block] = true;
    }
  }
  for (const MemoryBlock& a : plan.blocks) {
    EXPECT_LE(a.offset + a.bytes, plan.statistics.arena_bytes);
    for (const MemoryBlock& b : plan.blocks) {
      const bool live_together = a.first_step <= b.last_step && b.first_step <= a.last_step;
      const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      const bool are_used = a.bytes > 0 && b.bytes > 0;  // others were merged with another block
      EXPECT_FALSE(&a != &b && are_used && live_together && overlap);
    }
  }
}

TEST(Compiler, PlansAreValid) {
  const auto gpu = MakeEmulatedCudaBackend(1);
  gpu->SetPrecision(Precision::kBf16);
  for (const SampleGraph& sample : kSampleGraphs) {
    for (const Backend* backend : {&Reference(), static_cast<const Backend*>(gpu.get())}) {
      SCOPED_TRACE(::testing::Message() << sample.name << " on " << backend->name());
      const auto graph = MakeTraining(sample, DType::kF32, backend);
      StoreActivationsAs(backend->activation_dtype(), *graph);
      ExpectValid(Compile(*graph, *backend));
    }
  }
}

// Compiling is a function of the graph, the backend and the options.
TEST(Compiler, EqualGraphsGetEqualPlans) {
  const auto graph = MakeTraining(kSampleGraphs[0], DType::kF32, &Reference());
  const Plan a = Compile(*graph, Reference()), b = Compile(*graph, Reference());
  EXPECT_EQ(a.LayoutHash(), b.LayoutHash());
  EXPECT_EQ(a.ScheduleHash(), b.ScheduleHash());
  EXPECT_EQ(a.ready_order, b.ready_order);
  EXPECT_EQ(a.statistics.arena_bytes, b.statistics.arena_bytes);
  Schedule twice = PlainSchedule(*graph);
  twice.insert(twice.begin() + 1, twice.front());
  const Plan recomputed = Compile(*graph, Reference(), {.schedule = twice});
  EXPECT_EQ(recomputed.LayoutHash(), a.LayoutHash());
  EXPECT_NE(recomputed.ScheduleHash(), a.ScheduleHash());
  EXPECT_EQ(recomputed.statistics.kernels, a.statistics.kernels + 1);
}

TEST(Compiler, GivesEveryVariableALayout) {
  Graph g;
  Sketch s(g);
  s.Weight("unread", {2, 6}, false);
  g.MarkOutput(s.Relu(s.Linear(g.AddInput("x", {2, 4}, DType::kF32), "a", 3)));
  const Plan plan = Compile(g, Reference());
  ASSERT_EQ(plan.variable_layouts.size(), g.variables().size());
  EXPECT_EQ(plan.variable_layouts[0], Layout::Filter());
  EXPECT_TRUE(std::ranges::none_of(plan.variable_layouts, &Layout::is_any));
}

// A GPU's plan casts all weights in one step before the others; without 16-bit activations there is
// nothing to cast.
TEST(Compiler, WeightCastsAreAStepOfTheirOwn) {
  const auto gpu = MakeEmulatedCudaBackend(1);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    gpu->SetPrecision(precision);
    const auto graph = MakeTraining(kSampleGraphs[0], DType::kF32, gpu.get());
    StoreActivationsAs(gpu->activation_dtype(), *graph);
    const Plan plan = Compile(*graph, *gpu);
    ASSERT_EQ(plan.weight_casts.has_value(), precision == Precision::kBf16);
    EXPECT_EQ(plan.AllSteps().size(), plan.steps.size() + plan.weight_casts.has_value());
    if (!plan.weight_casts) continue;
    EXPECT_EQ(plan.AllSteps().front(), &*plan.weight_casts);
    for (const int input : plan.weight_casts->inputs)
      EXPECT_EQ(plan.representations[input].home, Representation::Home::kWeight);
    // The optimizer may keep the copies from one run to the next.
    const int last_step = static_cast<int>(plan.steps.size());
    for (const int output : plan.weight_casts->outputs)
      EXPECT_EQ(plan.blocks[plan.BlockOf(output)].last_step, last_step);
  }
}

TEST(Compiler, RefusesAGradientThatNoKernelMakes) {
  Graph g;
  Sketch s(g);
  const ValueId w = s.Weight("w", {2, 6});
  s.Loss(ops::Reshape(g, w, {4, 3}));
  Differentiate(g);
  EXPECT_THAT([&] { Compile(g, Reference()); },
              ThrowsMessage<InternalError>(HasSubstr("no kernel makes the gradient of w alone")));
}

TEST(Compiler, RefusesANodeBeforeItsInputs) {
  Graph g;
  Sketch s(g);
  g.MarkOutput(s.Relu(s.Linear(g.AddInput("x", {2, 4}, DType::kF32), "a", 3)));
  EXPECT_THAT(
      [&] {
        Compile(g, Reference(), {.schedule = {1, 0}});
      },
      ThrowsMessage<InternalError>(HasSubstr("reads a value that no node has computed")));
}

}  // namespace
}  // namespace carole::testing
