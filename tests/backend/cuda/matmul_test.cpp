// Checks how the CUDA backend calls cuBLASLt. conformance_test.cpp checks the results.
#include <gtest/gtest.h>

#include "src/backend/cuda/runtime/cuda.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

std::vector<Elements> RandomInputs(const OpSpec& spec) {
  std::vector<Elements> inputs;
  for (const TensorSpec& t : spec.inputs)
    inputs.push_back(t.present ? RandomElements(t.shape.size(), inputs.size()) : Elements());
  return inputs;
}

std::string MatmulOf(const OpSpec& plain, Precision precision) {
  const auto backend = MakeEmulatedCudaBackend(1);
  backend->SetPrecision(precision);
  const DType type = ActivationType(precision);
  const OpSpec spec = type == DType::kF32 ? plain : InNarrow(plain, type);
  RunPlain(*backend, spec, RandomInputs(spec));
  return LastMatmul();
}

// cuBLASLt fuses bias and ReLU, but cannot add an fp32 bias to a 16-bit result.
TEST(Matmuls, FuseBiasAndReluIfCublasLtCan) {
  const LinearSizes both{.n = 3, .c = 20, .k = 7, .bias = true, .relu = true};
  const LinearSizes bias{.n = 3, .c = 20, .k = 7, .bias = true};
  const LinearSizes relu{.n = 3, .c = 20, .k = 7, .relu = true};
  EXPECT_EQ(MatmulOf(LinearSpec(both), Precision::kFp32), "f32 NN to f32, relu, bias");
  EXPECT_EQ(MatmulOf(LinearSpec(bias), Precision::kTf32), "tf32 NN to f32, bias");
  EXPECT_EQ(MatmulOf(LinearSpec(relu), Precision::kBf16), "bf16 NN to bf16, relu");
  EXPECT_EQ(MatmulOf(LinearSpec(both), Precision::kFp16), "fp16 NN to fp16");
}

// Gradients of weights are fp32. Operands that are stored in 16 bits are never rounded to TF32.
TEST(Matmuls, MultiplyInTheTypeOfTheActivations) {
  const LinearSizes sizes{.n = 3, .c = 20, .k = 7, .bias = true};
  EXPECT_EQ(MatmulOf(LinearBackwardDataSpec(sizes), Precision::kBf16), "bf16 TN to bf16");
  EXPECT_EQ(MatmulOf(LinearBackwardFilterSpec(sizes), Precision::kBf16), "bf16 NT to f32");
  EXPECT_EQ(MatmulOf(LinearBackwardFilterSpec(sizes), Precision::kTf32), "tf32 NT to f32");
  EXPECT_EQ(MatmulOf(LinearBackwardDataSpec(sizes), Precision::kFp32), "f32 TN to f32");
}

// Nets that end with a convolution compute their logits so.
TEST(Matmuls, ConvolutionsOfOnePixelMayHaveFp32Results) {
  ConvSizes sizes = Conv({3, 20, 1, 1}, 7, 1, {}, {.bias = true});
  const OpSpec wide = Conv2dSpec(sizes);
  OpSpec spec = InNarrow(wide, DType::kBF16);
  spec.outputs[0].dtype = DType::kF32;
  const auto backend = MakeEmulatedCudaBackend(1);
  ASSERT_TRUE(backend->Supports(spec));
  std::vector<Elements> inputs = RandomInputs(spec);
  for (size_t i = 0; i < 2; ++i)
    for (double& v : inputs[i]) v = static_cast<float>(Bf16(static_cast<float>(v)));
  const Elements got = RunPlain(*backend, spec, inputs)[0],
                 want = RunPlain(*MakeReferenceBackend(1), InDouble(wide), inputs)[0];
  EXPECT_EQ(LastMatmul(), "bf16 TN to f32");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
  spec.inputs[0].shape = spec.outputs[0].shape = {3, 20, 2, 1};
  EXPECT_FALSE(backend->Supports(spec)) << "two pixels";
}

// Filters such as VGG's fc6. Their gradient is not rounded to 16 bits first, if its sizes suit
// tensor cores.
TEST(Matmuls, GradientsOfFiltersOverTheWholeImageAreFp32) {
  EXPECT_EQ(MatmulOf(Conv2dBackwardFilterSpec(Conv({3, 16, 5, 5}, 24, 5)), Precision::kBf16),
            "bf16 NT to f32");
  const auto backend = MakeEmulatedCudaBackend(1);
  const auto rounds = [&](const ConvSizes& sizes) {
    OpSpec spec = InNarrow(Conv2dBackwardFilterSpec(sizes), DType::kBF16);
    spec.outputs[0].dtype = DType::kBF16;
    return backend->Supports(spec);
  };
  EXPECT_FALSE(rounds(Conv({3, 16, 5, 5}, 24, 5)));
  EXPECT_TRUE(rounds(Conv({3, 16, 5, 5}, 21, 5)));
  EXPECT_TRUE(rounds(Conv({3, 9, 5, 5}, 24, 5)));
  EXPECT_TRUE(rounds(Conv({3, 16, 6, 5}, 24, 5)));
  EXPECT_TRUE(rounds(Conv({3, 16, 5, 5}, 24, 5, {.padding = Around(1)})));
}

}  // namespace
}  // namespace carole::testing
