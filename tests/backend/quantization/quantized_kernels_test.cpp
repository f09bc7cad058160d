// Checks what the conformance cases of quantized nets do not show.
#include <gtest/gtest.h>

#include "tests/backend/conformance.h"
#include "tests/backend/conformance_cases.h"

namespace carole::testing {
namespace {

// The layout of a convolution's filters pads rows between other elements. Then the number of stored
// elements is no multiple of the number of rows.
TEST(FakeQuant, RoundsFiltersInTheLayoutOfAConvolution) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: onednn is not built in";
  const auto backend = MakeOneDnnBackend(kThreads);
  OpSpec conv = Conv2dSpec(Conv({1, 32, 6, 6}, 37, 3));
  const TensorSpec w = conv.inputs[1];
  for (auto* tensors : {&conv.inputs, &conv.outputs}) {
    for (TensorSpec& t : *tensors) t.layout = Layout::Any();
  }
  const Layout layout = backend->MakeKernel(conv)->input_layouts()[1];
  if (layout.is_plain()) GTEST_SKIP() << "skipped: this CPU's convolutions read plain filters";
  const OpSpec plain =
      FakeQuantSpec(w, {.range = FakeQuantAttributes::Range::kLatest, .narrow = true});
  std::vector<Elements> inputs(plain.inputs.size(), Elements{0});
  inputs[0] = RandomElements(w.shape.size(), 1);
  inputs[0].back() = 9;  // the largest value, in the last row
  OpSpec spec = plain;
  spec.inputs[0].layout = spec.outputs[0].layout = layout;
  OpRun run(*backend, spec, MakeInputs(plain, inputs));
  run.Run({});
  EXPECT_EQ(run.output(0).layout(), layout);
  EXPECT_EQ(run.input(kPosition<FakeQuantInputs>.max).Read(), Elements{9});
  EXPECT_EQ(Reordered(*backend, run.output(0), w.layout).Read(),
            RunPlain(Oracle(), plain, inputs)[0]);
}

// Sums of oneDNN's kernels for quantized nets have a fixed order, too.
TEST(OneDnnBackend, ThreadsChangeNoBitsOfQuantizedNets) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: onednn is not built in";
  const auto one = MakeOneDnnBackend(1), three = MakeOneDnnBackend(3);
  for (const ConformanceCase& c : ConformanceCases()) {
    if (!IsOnlyInFp32(c.spec.kind)) continue;
    const std::vector<Elements> inputs = CaseInputs(c, DType::kF32);
    const Results a = RunCase(*one, c, DType::kF32, inputs, true, false);
    const Results b = RunCase(*three, c, DType::kF32, inputs, true, false);
    EXPECT_EQ(a.outputs, b.outputs) << c.name;
    EXPECT_EQ(a.inputs, b.inputs) << c.name;
  }
}

// Ranges and statistics need fp32.
TEST(Precision, NetsAreQuantizedInFp32Only) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeEmulatedCudaBackend(1));
  if (OneDnnAvailable()) backends.push_back(MakeOneDnnBackend(1));
  for (const ConformanceCase& c : ConformanceCases()) {
    const OpSpec narrow = InNarrow(c.spec, DType::kBF16);
    if (!IsOnlyInFp32(c.spec.kind) || !IsNarrow(narrow.inputs[0].dtype)) continue;
    for (const auto& backend : backends) {
      EXPECT_TRUE(backend->Supports(c.spec)) << backend->name() << " " << c.name;
      EXPECT_FALSE(backend->Supports(narrow)) << backend->name() << " " << c.name;
    }
  }
}

}  // namespace
}  // namespace carole::testing
