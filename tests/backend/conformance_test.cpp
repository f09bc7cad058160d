// Runs one list of cases (conformance_cases.h) on every backend. conformance.h says how.
#include "tests/backend/conformance.h"

#include <gtest/gtest.h>

#include "src/backend/cuda/convolution/convolution_task.h"
#include "tests/backend/conformance_cases.h"
#include "tests/support/precision_problem.h"

namespace carole::testing {
namespace {

class Conformance : public ::testing::TestWithParam<std::tuple<TestedBackend, ConformanceCase>> {};

TEST_P(Conformance, MatchesReferenceInDouble) {
  const auto& [entry, c] = GetParam();
  if (const std::string problem = entry.unavailable_reason(); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  const auto backend = entry.make(kThreads);
  const UseMemoryOf memory(*backend);
  const OpSpec narrow = InType(c.spec, DType::kBF16);
  const bool has_narrow = c.spec.kind != op::kReorder && !IsOnlyInFp32(c.spec.kind) &&
                          (IsNarrow(narrow.inputs[0].dtype) || IsNarrow(narrow.outputs[0].dtype));
  const bool in_fp32 = backend->Supports(c.spec);
  if (!in_fp32 && !(has_narrow && backend->Supports(narrow)))
    GTEST_SKIP() << entry.name << " does not support " << c.name;
  if (in_fp32) ExpectConformsIn(Precision::kFp32, *backend, c, entry.may_round_dw);
  if (!has_narrow) return;
  for (const Precision precision : entry.other_precisions) {
    // For other operations, TF32 is the same as fp32.
    if (precision == Precision::kTf32 && !(IsProduct(c.spec.kind) && in_fp32)) continue;
    const std::string problem = PrecisionProblem(precision, *backend);
    if (!problem.empty()) GTEST_SKIP() << "skipped: " << problem;
    EXPECT_TRUE(backend->Supports(InType(c.spec, ActivationType(precision)))) << Name(precision);
    ExpectConformsIn(precision, *backend, c, entry.may_round_dw);
  }
}

// Tests the CUDA kernels that are used only if timing shows that they are faster: convolutions with
// pairs of outputs, or with a fused mask.
const TestedBackend kOptionalKernels[] = {
    {"emulated_cuda_optional",
     [](int) { return MakeEmulatedCudaBackend({.force_optional_kernels = true}); },
     [] { return std::string(); },
     {Precision::kBf16, Precision::kFp16},
     true},
    {"cuda_optional",
     [](int) { return MakeCudaBackend({.force_optional_kernels = true}); },
     GpuUnavailableReason,
     {Precision::kBf16, Precision::kFp16},
     true},
};

std::vector<ConformanceCase> CasesWithOptionalKernels() {
  using Task = cuda::ConvolutionTask;
  std::vector<ConformanceCase> cases = ConformanceCases();
  std::erase_if(cases, [](const ConformanceCase& c) {
    if (!c.name.starts_with("conv2d")) return true;
    const Task task = Task::Of(InType(c.spec, DType::kBF16)).ForLibrary(false);
    return !task.mask && !task.CanPairOutputs();
  });
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Conformance::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(OptionalKernels, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kOptionalKernels),
                                            ::testing::ValuesIn(CasesWithOptionalKernels())),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Backends, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kTested),
                                            ::testing::ValuesIn(ConformanceCases())),
                         NameOf);

TEST(ReferenceBackend, ThreadsChangeNoBits) {
  const auto one = MakeReferenceBackend(1), three = MakeReferenceBackend(3);
  for (const ConformanceCase& c : ConformanceCases()) {
    const std::vector<Elements> inputs = CaseInputs(c, DType::kF32);
    const Results a = RunCase(*one, c, DType::kF32, inputs, false, false);
    const Results b = RunCase(*three, c, DType::kF32, inputs, false, false);
    EXPECT_EQ(a.outputs, b.outputs) << c.name;
    EXPECT_EQ(a.inputs, b.inputs) << c.name;
  }
}

// On GPUs, argmax is stored in bytes for windows of up to 256 pixels, and in wider integers for
// larger ones. This test uses fp32: in 16 bits, such windows have several maxima, and oneDNN takes
// any of them.
TEST(EmulatedGpu, FindsMaximaOfLargeWindows) {
  const auto gpu = MakeEmulatedCudaBackend(1), reference = MakeReferenceBackend(1);
  const Pool2dAttributes same{
      .window_h = 16, .window_w = 16, .stride_h = 1, .stride_w = 1, .padding = {0, 0, 1, 2}};
  const Pool2dAttributes larger{.window_h = 17, .window_w = 16, .stride_h = 2, .stride_w = 3};
  for (const Pool2dAttributes& a : {same, larger}) {
    const PoolSizes sizes{{2, 8, 20, 19}, a};
    const OpSpec forward = Pool2dSpec(sizes), backward = Pool2dBackwardSpec(sizes);
    const Elements x = RandomElements(2 * 8 * 20 * 19, 1);
    const Elements dy = RandomElements(backward.inputs[0].shape.size(), 2);
    std::vector<Elements> dx;
    for (const Backend* backend : {gpu.get(), reference.get()}) {
      const Elements argmax = RunPlain(*backend, forward, {x})[1];
      dx.push_back(RunPlain(*backend, backward, {dy, argmax})[0]);
    }
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(dx[0][i], dx[1][i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace carole::testing
