// The precisions that backends accept, and their casts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "src/backend/cuda/runtime/cuda.h"
#include "src/core/error.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"
#include "tests/support/precision_problem.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Precision, CpusRefuseTf32) {
  for (const BackendEntry& entry : kBackends) {
    if (entry.name == "onednn" && !OneDnnAvailable()) continue;
    const auto backend = entry.make(1);
    EXPECT_THAT(PrecisionProblem(Precision::kTf32, *backend), HasSubstr("[precision] tf32: "));
    EXPECT_EQ(PrecisionProblem(Precision::kFp32, *backend), "");
    EXPECT_EQ(backend->activation_dtype(), DType::kF32);
  }
}

TEST(Precision, OneDnnRefusesFp16AndNamesTheInstructions) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  EXPECT_THAT(PrecisionProblem(Precision::kFp16, *MakeOneDnnBackend(1)),
              AllOf(HasSubstr("[precision] fp16: not supported by this CPU"),
                    HasSubstr("avx512_fp16"), HasSubstr("use \x1f$(precision)=")));
}

// A GPU's compute capability decides. The message names a precision that the GPU supports.
TEST(Precision, GpusRefuseUnsupportedPrecisions) {
  const struct {
    Precision precision;
    int capability;
    const char* want;  // part of the message; empty: the precision is supported
  } rows[] = {
      {Precision::kFp32, 60, ""},
      {Precision::kFp16, 60,
       "[precision] fp16: not supported by this GPU (Old): got compute capability 6.0"},
      {Precision::kFp16, 70, ""},
      {Precision::kBf16, 75,
       "[precision] bf16: not supported by this GPU (Old): got compute capability 7.5, "
       "want 8.0 or higher; use \x1f$(precision)=fp16"},
      {Precision::kTf32, 60, "want 8.0 or higher; use \x1f$(precision)=fp32"},
      {Precision::kTf32, 80, ""},
      {Precision::kBf16, 90, ""},
  };
  for (const auto& row : rows) {
    std::string text;
    try {
      cuda::RequirePrecision(row.precision, row.capability, "Old");
    } catch (const ConfigError& error) {
      text = error.what();
      EXPECT_EQ(error.code(), ExitCode::kConfiguration);
    }
    EXPECT_EQ(text.empty(), *row.want == 0) << text;
    EXPECT_THAT(text, HasSubstr(row.want));
  }
}

constexpr BackendEntry kEmulatedCuda = {.name = "emulated_cuda",
                                        .make = MakeEmulatedCudaBackend,
                                        .unavailable_reason = [] { return std::string(); }};

class Casts : public ::testing::TestWithParam<BackendEntry> {};

// fp32 -> bf16 in the layout of a convolution's operands -> fp32: every element is rounded once.
TEST_P(Casts, RoundOnceInEveryLayout) {
  if (GetParam().name == "onednn" && !OneDnnAvailable())
    GTEST_SKIP() << "skipped: built without oneDNN";
  const auto backend = GetParam().make(2);
  if (const std::string problem = PrecisionProblem(Precision::kBf16, *backend); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  EXPECT_EQ(backend->activation_dtype(), DType::kBF16);
  for (const int64_t groups : {1, 4}) {
    OpSpec conv =
        InNarrow(Conv2dSpec(Conv({2, 20, 6, 5}, 24, 3, {.groups = groups})), DType::kBF16);
    for (TensorSpec& t : conv.inputs) t.layout = Layout::Any();
    for (TensorSpec& t : conv.outputs) t.layout = Layout::Any();
    const std::vector<Layout> layouts = backend->MakeKernel(conv)->input_layouts();
    for (const size_t input : {0, 1}) {
      const Shape& shape = conv.inputs[input].shape;
      const Layout plain = input == 0 ? Layout::Nhwc() : Layout::Filter();
      GuardedTensor from(shape, DType::kF32, plain), back(shape, DType::kF32, plain);
      GuardedTensor narrow(shape, DType::kBF16, layouts[input]);
      Elements want = RandomElements(shape.size(), input);
      from.Write(want);
      backend->Reorder(from.tensor(), narrow.tensor());
      backend->Reorder(narrow.tensor(), back.tensor());
      for (double& v : want) v = static_cast<float>(Bf16(static_cast<float>(v)));
      EXPECT_EQ(back.Read(), want) << "input " << input << ", " << groups << " groups";
      EXPECT_TRUE(narrow.memory().GuardsIntact());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Casts,
                         ::testing::Values(kBackends[0], kBackends[1], kEmulatedCuda),
                         [](const auto& info) { return std::string(info.param.name); });

// fp16 is stored with 11 bits of mantissa and computed in fp32.
TEST(Reference, EmulatesFp16) {
  const auto backend = MakeReferenceBackend(1);
  ASSERT_EQ(PrecisionProblem(Precision::kFp16, *backend), "");
  const OpSpec spec = InNarrow(LinearSpec({.n = 1, .c = 2, .k = 1}), DType::kF16);
  // 1 + 2^-11 is a tie that goes to 1; the sum of the two products is exact, then rounded.
  EXPECT_EQ(RunPlain(*backend, spec, {{1 + 0x1p-11, 2048}, {1, 1}, {}})[0][0], 2048)
      << "2049 is a tie too";
  EXPECT_EQ(RunPlain(*backend, spec, {{1 + 0x1p-10, 2048}, {1, 1}, {}})[0][0], 2050);
  EXPECT_EQ(RunPlain(*backend, spec, {{60000, 60000}, {1, 1}, {}})[0][0],
            std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace carole::testing
