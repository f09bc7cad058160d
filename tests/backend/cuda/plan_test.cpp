// Checks that cuDNN has a plan for every convolution in every precision, also for fused ones. No
// GPU is needed: cuDNN plans for a GPU that is described to it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "src/core/error.h"
#include "src/core/module.h"
#include "tests/backend/conformance_cases.h"
#include "tests/support/described_gpu.h"

namespace carole::testing {
namespace {

struct Planned {
  std::string error_text;
  bool tensor_cores = false;
};

// Returns what src/backend/cuda/convolution/conv2d.cpp plans for an H200. Throws ConfigError if
// the CUDA module cannot be loaded.
Planned PlanOnHopper(const OpSpec& spec, Precision precision, bool require_fused) {
  const auto check =
      LoadFunction<void(const OpSpec&, Precision, const std::string&, bool, std::string&, bool&)>(
          {.tag = "cuda",
           .library = "libcarole_cuda.so",
           .if_missing = "no CUDA",
           .dependencies = "cuDNN 9"},
          "carole_check_plan");
  const DType type = ActivationType(precision);
  Planned planned;
  check(type == DType::kF32 ? spec : InNarrow(spec, type), precision, std::string(kDescribedH200),
        require_fused, planned.error_text, planned.tensor_cores);
  return planned;
}

// Returns why the tests must be skipped on this machine, or an empty string.
std::string SkipReason() {
  try {
    const Planned planned =
        PlanOnHopper(Conv2dSpec(Conv({1, 8, 4, 4}, 8, 1)), Precision::kFp32, false);
    return planned.error_text.find("starting 9.8") != std::string::npos ? planned.error_text : "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// Whether cuDNN plans this case: depthwise convolutions have kernels of our own.
bool IsPlanned(const std::string& name) {
  return name.starts_with("conv2d") && name.find("depthwise") == std::string::npos;
}

// Whether cuDNN has fused kernels for this operation: those that add a bias and apply ReLU.
bool IsFused(const OpSpec& spec) {
  return spec.kind == op::kConv2d && IsPresent(spec.inputs, 2) &&
         spec.attributes.as<Conv2dAttributes>().relu;
}

// Whether libcuda.so.1 can be loaded. cuDNN compiles kernels for 16-bit masks, and needs the
// driver's library for that. On machines without a GPU, the stub in
// tests/support/driver_without_gpu serves.
bool HasDriver() {
  static const bool has_driver = [] {
    if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) return true;
#ifdef CAROLE_DRIVER_WITHOUT_GPU
    return dlopen(CAROLE_DRIVER_WITHOUT_GPU, RTLD_NOW) != nullptr;
#else
    return false;
#endif
  }();
  return has_driver;
}

class Plans : public ::testing::Test {
 protected:
  void SetUp() override {
    has_driver_ = HasDriver();  // must come before cuDNN looks for the driver
    if (const std::string skip_reason = SkipReason(); !skip_reason.empty())
      GTEST_SKIP() << "skipped: " << skip_reason;
  }

  bool has_driver_ = false;
};

TEST_F(Plans, CudnnHasAPlanForEveryConvolutionInEveryPrecision) {
  int num_planned = 0;
  for (const ConformanceCase& c : ConformanceCases()) {
    if (!IsPlanned(c.name)) continue;
    for (const Precision precision :
         {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
      EXPECT_EQ(PlanOnHopper(c.spec, precision, IsFused(c.spec)).error_text, "")
          << c.name << " in " << Name(precision);
      ++num_planned;
    }
  }
  EXPECT_GT(num_planned, 150);
}

// VGG's first fully connected layer. From this batch size on, cuDNN had no plan with tensor cores
// for the gradient of its filter.
TEST_F(Plans, FullyConnectedLayersOfImagesUseTensorCores) {
  const ConvSizes fc6 = Conv({256, 512, 7, 7}, 4096, 7);
  for (const OpSpec& spec :
       {Conv2dSpec(fc6), Conv2dBackwardDataSpec(fc6), Conv2dBackwardFilterSpec(fc6)}) {
    for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kFp16})
      EXPECT_TRUE(PlanOnHopper(spec, precision, false).tensor_cores)
          << Name(spec.kind) << " in " << Name(precision);
    EXPECT_FALSE(PlanOnHopper(spec, Precision::kFp32, false).tensor_cores)
        << Name(spec.kind) << " in fp32";
  }
}

// Images have 3 channels; more channels are zeros or come from neighboring pixels.
TEST_F(Plans, FirstLayersUseTensorCores) {
  for (const ConvSizes& stem :
       {ResNetStem(256), InceptionStem(256), MobileNetStem(256), VggStem(256)}) {
    for (const OpSpec& spec : {Conv2dSpec(stem), Conv2dBackwardFilterSpec(stem)}) {
      for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
        const Planned planned = PlanOnHopper(spec, precision, false);
        EXPECT_EQ(planned.error_text, "");
        EXPECT_TRUE(planned.tensor_cores) << Name(spec.kind) << " in " << Name(precision);
      }
    }
  }
}

// Without a driver, the mask is a separate kernel.
TEST_F(Plans, MaskedGradientsUseTensorCores) {
  const ConvSizes conv3_2 =
      Conv({128, 256, 56, 56}, 256, 3, {.padding = Around(1)}, {.relu_mask = true});
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Planned planned = PlanOnHopper(Conv2dBackwardDataSpec(conv3_2), precision, has_driver_);
    EXPECT_EQ(planned.error_text, "");
    EXPECT_TRUE(planned.tensor_cores) << Name(precision);
  }
}

// Layers with 64 channels use output pairs; bias and ReLU are fused.
TEST_F(Plans, NarrowLayersUseTensorCores) {
  const ConvSizes conv1_2 = Conv({128, 64, 224, 224}, 64, 3, {.padding = Around(1)});
  ConvSizes fused = conv1_2;
  fused.bias = fused.attributes.relu = true;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const OpSpec& spec :
         {Conv2dSpec(conv1_2), Conv2dSpec(fused), Conv2dBackwardFilterSpec(conv1_2)}) {
      const Planned planned = PlanOnHopper(spec, precision, true);
      EXPECT_EQ(planned.error_text, "");
      EXPECT_TRUE(planned.tensor_cores) << Name(spec.kind) << " in " << Name(precision);
    }
  }
}

}  // namespace
}  // namespace carole::testing
