// A GPU that cuDNN can plan for without having it.
#pragma once

#include <string_view>

namespace carole::testing {

// An H200 (compute capability 9.0), in the JSON format of cuDNN 9.
inline constexpr std::string_view kDescribedH200 =
    R"({"deviceName":"H200","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"pciDeviceId":0,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"smClockRateKHz":1980000,"memClockRateKHz":3201000,)"
    R"("l2CacheSize":62914560,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,)"
    R"("totalGlobalMem":150000000000})";

}  // namespace carole::testing
