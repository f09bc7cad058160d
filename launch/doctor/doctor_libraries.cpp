// Checks of libraries that are loaded at run time: PMIx, the NVIDIA driver, NCCL.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "launch/cluster/message_text.h"
#include "launch/doctor/doctor.h"
#include "launch/job/process.h"
#include "src/core/error.h"
#include "src/core/files/best_effort_file.h"

namespace carole::launch {
namespace {

constexpr int kCudaMajor = 1000;  // CUDA writes version 12.2 as 12 * 1000 + 2 * 10

// Calls `use` with a function of a shared library. Returns false if there is no such library or
// function.
template <typename Function, typename Use>
bool UseFunction(const char* library, const char* name, const Use& use) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  auto* function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function != nullptr) use(function);
  dlclose(handle);
  return function != nullptr;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string CudaText(int version) {
  return fmt::format("{}.{}", version / kCudaMajor, version % kCudaMajor / 10);
}

int MajorOf(const std::string& version) { return std::atoi(version.c_str()); }

std::string Describe(const GpuFacts& facts) {
  std::string text = fmt::format("{} GPUs for {} ranks", facts.gpus, facts.local_ranks);
  if (!facts.visible_devices.empty())
    text += fmt::format(", CUDA_VISIBLE_DEVICES={}", Quote(facts.visible_devices));
  text += fmt::format("; driver {}", facts.driver.version);
  if (facts.driver.cuda > 0) text += fmt::format(" (CUDA up to {})", CudaText(facts.driver.cuda));
  return text + fmt::format(", built with CUDA {}", facts.built_cuda);
}

Finding JudgeWithoutDriver(const GpuFacts& facts) {
  const bool is_built = facts.built_cuda != "no";
  const std::string built =
      is_built ? "built with CUDA " + facts.built_cuda : "no CUDA in this build";
  if (!is_built || facts.visible_devices.empty())
    return {"GPU", FindingStatus::kSkipped, built + ", no NVIDIA driver here", ""};
  return {"GPU", FindingStatus::kProblem,
          fmt::format("{}, CUDA_VISIBLE_DEVICES={}, but no NVIDIA driver here", built,
                      Quote(facts.visible_devices)),
          "install the NVIDIA driver on this host; start containers with --gpus=all (podman: "
          "--device nvidia.com/gpu=all)"};
}

}  // namespace

Finding JudgePmix(const std::string& library, const std::string& starter, bool in_slurm,
                  const std::string& plugins) {
  std::string text = fmt::format("library {}", library.empty() ? "none" : library);
  if (!starter.empty()) text += fmt::format(", started by PMIx {}", starter);
  const std::string plugin = FirstMatch(plugins, "pmix(_v[0-9]+)?");
  if (in_slurm) text += fmt::format("; srun has {}", plugin.empty() ? "no pmix" : plugin);
  if (!library.empty() && !starter.empty() && MajorOf(library) != MajorOf(starter))
    return {"PMIx", FindingStatus::kProblem, text,
            "start the ranks with an mpirun or a Slurm plugin that has the PMIx version of the "
            "library"};
  if (in_slurm && plugin.empty())
    return {
        "PMIx", FindingStatus::kWarning, text,
        "start with mpirun (CAROLE_START=mpirun), or install Slurm's PMIx plugin: srun needs it to "
        "start ranks of Open MPI"};
  const bool is_known = !library.empty() || !starter.empty() || in_slurm;
  return {"PMIx", is_known ? FindingStatus::kOk : FindingStatus::kSkipped, text, ""};
}

Finding CheckPmix() {
  std::string library, plugins;
  UseFunction<const char*()>("libpmix.so.2", "PMIx_Get_version", [&](auto* get_version) {
    library = FirstMatch(get_version(), kVersionPattern);
  });
  const bool in_slurm = !Variable("SLURM_JOB_ID").empty();
  try {
    if (in_slurm)
      plugins = RunAndCaptureOutput({FindProgram("srun", "slurm-client"), "--mpi=list"});
  } catch (const Error&) {
    plugins.clear();  // srun has none that can be used
  }
  return JudgePmix(library, Variable("PMIX_VERSION"), in_slurm, plugins);
}

GpuDriver ReadGpuDriver() {
  GpuDriver driver{.version = FirstMatch(ReadFileOrEmpty("/proc/driver/nvidia/version"),
                                         "[0-9]+\\.[0-9]+(\\.[0-9]+)?")};
  UseFunction<int(int*)>("libcuda.so.1", "cuDriverGetVersion",
                         [&](auto* get_version) { get_version(&driver.cuda); });
  if (driver.version.empty() && driver.cuda > 0) driver.version = "of unknown version";
  return driver;
}

Finding JudgeGpu(const GpuFacts& facts) {
  if (facts.driver.version.empty()) return JudgeWithoutDriver(facts);
  if (facts.built_cuda == "no")
    return {"GPU", FindingStatus::kWarning, "the NVIDIA driver is here, but no CUDA in this build",
            "install the CUDA toolkit and cuDNN 9, and build again"};
  const std::string text = Describe(facts);
  if (facts.driver.cuda > 0 && facts.driver.cuda / kCudaMajor < MajorOf(facts.built_cuda))
    return {"GPU", FindingStatus::kProblem, text,
            fmt::format("install a driver for CUDA {} or newer, or build with CUDA {}",
                        MajorOf(facts.built_cuda), CudaText(facts.driver.cuda))};
  if (!facts.problem.empty())
    return {"GPU", FindingStatus::kProblem, fmt::format("{}; {}", text, facts.problem),
            "do what the text says; nvidia-smi lists the GPUs of this host; start containers with "
            "--gpus=all"};
  const bool is_bound = facts.gpus == 1 && !facts.visible_devices.empty();
  if (facts.local_ranks > facts.gpus && !is_bound)
    return {"GPU", FindingStatus::kProblem, text,
            fmt::format("start {} ranks on this host, or give the job more GPUs ({}; Slurm: "
                        "--gpus-per-node)",
                        facts.gpus, Option("num_gpus"))};
  return {"GPU", FindingStatus::kOk, text, ""};
}

Finding JudgeNccl(const std::string& version, const std::string& problem, const GpuFacts& facts) {
  if (!version.empty()) return {"NCCL", FindingStatus::kOk, version, ""};
  if (facts.gpus == 0) return {"NCCL", FindingStatus::kSkipped, "none, and no GPU", ""};
  return {"NCCL", facts.local_ranks > 1 ? FindingStatus::kProblem : FindingStatus::kWarning,
          problem,
          "install NCCL (libnccl2, libnccl-dev) and build again: several ranks on GPUs need it to "
          "reduce gradients"};
}

}  // namespace carole::launch
