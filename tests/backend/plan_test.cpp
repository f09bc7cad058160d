// cuDNN has a plan for every convolution in every precision, and for fused ones in fp32, asked
// without a GPU: of one that is described to it.
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

using CheckPlan = void(const OpSpec& spec, Precision precision, const std::string& gpu,
                       bool in_one_pass, std::string& trouble);

// Depthwise ones are our own.
bool IsPlanned(const std::string& name) {
  return name.starts_with("conv2d") && name.find("depthwise") == std::string::npos;
}

// What the library has kernels for that add a bias and apply ReLU. Those for a bias in fp32 beside
// images in 16 bits it compiles, which it does on a GPU only.
bool IsFused(const OpSpec& spec) {
  return spec.kind == OpKind::kConv2d && IsPresent(spec.inputs, 2) &&
         spec.attributes_as<Conv2dAttributes>().relu;
}

TEST(Plans, CuDnnHasOneForEveryConvolutionInEveryPrecision) {
  CheckPlan* check = nullptr;
  try {
    check = LoadFunction<CheckPlan>(
        {.tag = "cuda", .library = "libcarole_cuda.so", .without = "no CUDA", .needs = "cuDNN 9"},
        "carole_check_plan");
  } catch (const ConfigError& error) {
    GTEST_SKIP() << "skipped: " << error.what();
  }
  int num_planned = 0;
  for (const ConformanceCase& c : ConformanceCases()) {
    if (!IsPlanned(c.name)) continue;
    for (const Precision precision :
         {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
      const DType type = ActivationType(precision);
      const bool in_one_pass = IsFused(c.spec) && type == DType::kF32;
      std::string trouble;
      check(type == DType::kF32 ? c.spec : InNarrow(c.spec, type), precision, std::string(kHopper),
            in_one_pass, trouble);
      if (trouble.find("starting 9.8") != std::string::npos) GTEST_SKIP() << "skipped: " << trouble;
      EXPECT_EQ(trouble, "") << c.name << " in " << Name(precision);
      ++num_planned;
    }
  }
  EXPECT_GT(num_planned, 150);
}

}  // namespace
}  // namespace carole::testing
