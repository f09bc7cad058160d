#include <fmt/format.h>
#include <gtest/gtest.h>

#include "src/core/simd.h"
#include "tests/backend/conformance.h"
#include "tests/backend/conformance_cases.h"
#include "tests/support/precision_problem.h"

namespace carole::testing {
namespace {

// Winograd's algorithm is used for the cases with "_tiles" in their name, unless it is forbidden.
// It conforms on any number of threads, even if there are more threads than rows of tiles.
TEST(Winograd, ConformsOnAnyNumberOfThreads) {
  if (!OneDnnAvailable() || SimdLevel() < 3) GTEST_SKIP() << "skipped: oneDNN or AVX2 is missing";
  // Winograd's kernels read plain filters; oneDNN's own kernels read filters in blocks.
  const auto uses_winograd = [](const Backend& backend, OpSpec spec) {
    TensorSpec& w = spec.kind == op::kConv2dBackwardFilter ? spec.outputs[0] : spec.inputs[1];
    w.layout = Layout::Any();
    const auto kernel = backend.MakeKernel(spec);
    return (&w == &spec.outputs[0] ? kernel->output_layouts()[0] : kernel->input_layouts()[1]) ==
           Layout::Filter();
  };
  const std::string problem = PrecisionProblem(Precision::kBf16, *MakeOneDnnBackend(1));
  if (!problem.empty()) fmt::print("skipped: in bf16: {}\n", problem);
  int cases = 0;
  for (const ConformanceCase& c : ConformanceCases()) {
    if (c.name.find("_tiles") == std::string::npos) continue;
    const auto direct = MakeOneDnnBackend(1);
    if (!direct->Supports(c.spec)) continue;
    SCOPED_TRACE(c.name);
    ++cases;
    OpSpec exact = c.spec;
    exact.attributes.as<Conv2dAttributes>().exact = true;
    EXPECT_FALSE(uses_winograd(*direct, exact));
    direct->UseWinograd(Winograd::kNever);
    EXPECT_FALSE(uses_winograd(*direct, c.spec));
    for (const int threads : {1, 3, 20}) {
      SCOPED_TRACE(threads);
      const auto backend = MakeOneDnnBackend(threads);
      EXPECT_TRUE(uses_winograd(*backend, c.spec));
      ExpectConformsIn(Precision::kFp32, *backend, c, false);
      if (!problem.empty()) continue;
      backend->SetPrecision(Precision::kBf16);
      backend->UseWinograd(Winograd::kIfPossible);
      EXPECT_TRUE(uses_winograd(*backend, InType(c.spec, DType::kBF16)));
      ExpectConformsIn(Precision::kBf16, *backend, c, false);
    }
  }
  EXPECT_EQ(cases, 9);
}

}  // namespace
}  // namespace carole::testing
