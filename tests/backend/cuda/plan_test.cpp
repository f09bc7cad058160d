// cuDNN has a plan for every convolution in every precision, and for fused ones, asked without a
// GPU: of one that is described to it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string_view>

#include "src/core/error.h"
#include "src/core/module.h"
#include "tests/backend/conformance_cases.h"

namespace carole::testing {
namespace {

// Compute capability 9.0, in the words of cuDNN 9.
constexpr std::string_view kHopper =
    R"({"deviceName":"H200","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"pciDeviceId":0,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"smClockRateKHz":1980000,"memClockRateKHz":3201000,)"
    R"("l2CacheSize":62914560,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,)"
    R"("totalGlobalMem":150000000000})";

struct Planned {
  std::string problem;
  bool tensor_cores = false;
};

// What src/backend/cuda/convolution/conv2d.cpp plans for such a GPU; `problem` too if there is
// nobody to ask.
Planned PlanOnHopper(const OpSpec& spec, Precision precision, bool in_one_pass) {
  const auto check =
      LoadFunction<void(const OpSpec&, Precision, const std::string&, bool, std::string&, bool&)>(
          {.tag = "cuda", .library = "libcarole_cuda.so", .without = "no CUDA", .needs = "cuDNN 9"},
          "carole_check_plan");
  const DType type = ActivationType(precision);
  Planned planned;
  check(type == DType::kF32 ? spec : InNarrow(spec, type), precision, std::string(kHopper),
        in_one_pass, planned.problem, planned.tensor_cores);
  return planned;
}

// Why there is nothing to test here, or nothing.
std::string Lacking() {
  try {
    const Planned planned =
        PlanOnHopper(Conv2dSpec(Conv({1, 8, 4, 4}, 8, 1)), Precision::kFp32, false);
    return planned.problem.find("starting 9.8") != std::string::npos ? planned.problem : "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// Depthwise ones are our own.
bool IsPlanned(const std::string& name) {
  return name.starts_with("conv2d") && name.find("depthwise") == std::string::npos;
}

// What the library has kernels for that add a bias and apply ReLU.
bool IsFused(const OpSpec& spec) {
  return spec.kind == OpKind::kConv2d && IsPresent(spec.inputs, 2) &&
         spec.attributes_as<Conv2dAttributes>().relu;
}

// Kernels for masks in 16 bits the library compiles, and wants the driver's library for that. A
// machine without a GPU has none but ours, which finds no GPU.
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
    has_driver_ = HasDriver();  // before the library looks for it
    if (const std::string lacking = Lacking(); !lacking.empty())
      GTEST_SKIP() << "skipped: " << lacking;
  }

  bool has_driver_ = false;
};

TEST_F(Plans, CuDnnHasOneForEveryConvolutionInEveryPrecision) {
  int num_planned = 0;
  for (const ConformanceCase& c : ConformanceCases()) {
    if (!IsPlanned(c.name)) continue;
    for (const Precision precision :
         {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
      EXPECT_EQ(PlanOnHopper(c.spec, precision, IsFused(c.spec)).problem, "")
          << c.name << " in " << Name(precision);
      ++num_planned;
    }
  }
  EXPECT_GT(num_planned, 150);
}

// VGG's first, at the batch from which cuDNN had none with tensor cores for its filter's gradient.
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

// Red, green and blue, with zeros for more: of ResNet, of Inception and MobileNet, of VGG.
TEST_F(Plans, FirstLayersUseTensorCores) {
  for (const ConvSizes& stem :
       {ResNetStem(256), InceptionStem(256), MobileNetStem(256), VggStem(256)}) {
    for (const OpSpec& spec : {Conv2dSpec(stem), Conv2dBackwardFilterSpec(stem)}) {
      for (const Precision precision : {Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
        const Planned planned = PlanOnHopper(spec, precision, false);
        EXPECT_EQ(planned.problem, "");
        EXPECT_TRUE(planned.tensor_cores) << Name(spec.kind) << " in " << Name(precision);
      }
    }
  }
}

// Where there is no driver, the mask takes a pass of its own.
TEST_F(Plans, MaskedGradientsUseTensorCores) {
  const ConvSizes conv3_2 =
      Conv({128, 256, 56, 56}, 256, 3, {.padding = Around(1)}, {.mask = true});
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Planned planned = PlanOnHopper(Conv2dBackwardDataSpec(conv3_2), precision, has_driver_);
    EXPECT_EQ(planned.problem, "");
    EXPECT_TRUE(planned.tensor_cores) << Name(precision);
  }
}

// Of 64 channels, in pairs of outputs; with a bias and ReLU in one pass.
TEST_F(Plans, NarrowLayersUseTensorCores) {
  const ConvSizes conv1_2 = Conv({128, 64, 224, 224}, 64, 3, {.padding = Around(1)});
  ConvSizes fused = conv1_2;
  fused.bias = fused.attributes.relu = true;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const OpSpec& spec :
         {Conv2dSpec(conv1_2), Conv2dSpec(fused), Conv2dBackwardFilterSpec(conv1_2)}) {
      const Planned planned = PlanOnHopper(spec, precision, true);
      EXPECT_EQ(planned.problem, "");
      EXPECT_TRUE(planned.tensor_cores) << Name(spec.kind) << " in " << Name(precision);
    }
  }
}

}  // namespace
}  // namespace carole::testing
