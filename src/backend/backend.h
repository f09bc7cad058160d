// The one interface to compute kernels. A backend makes a kernel for an operation and the layouts
// of its inputs; the plan (graph/executable.h) gives the kernel its memory once, and runs it every
// step.
//
// Backends: reference/ (plain loops, the oracle), onednn/ (CPU), cuda/ (GPU). All are tested by one
// suite of cases (tests/backend/conformance_test.cpp).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/op.h"
#include "src/tensor/tensor.h"

namespace carole {

// What changes from run to run.
struct RunContext {
  uint64_t seed = 0;
  int64_t step = 0;  // keys dropout
  int64_t first_sample =
      0;  // place in the global batch of row 0 (keys dropout, so that ranks change nothing)
  // Rows of the batch that count, the first ones; 0 means all. kNoRows only with sum_over_ranks.
  int64_t valid_rows = 0;
  static constexpr int64_t kNoRows = -1;
  // Replaces the values, in the kernels' memory and order, by their sums over all ranks, the same
  // bits everywhere. With it, training batch norm takes its statistics from the rows that count on
  // any rank; without it, on this one.
  std::function<void(std::span<double>)> sum_over_ranks;
};

// Memory for one kernel, fixed for its lifetime. Absent places have data == nullptr.
struct KernelMemory {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::byte* workspace =
      nullptr;  // workspace_bytes() bytes, aligned to Buffer::kAlignment, contents undefined
};

// One operation ready to run. Not thread-safe; runs on the caller's thread and the backend's own.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // The layouts that the kernel reads and writes; the plan reorders where they differ from what
  // there is. An input whose spec had layout Any (a parameter that nobody has placed yet) gets the
  // kernel's choice.
  const std::vector<Layout>& input_layouts() const { return input_layouts_; }
  const std::vector<Layout>& output_layouts() const { return output_layouts_; }
  size_t workspace_bytes() const { return workspace_bytes_; }

  // The input whose memory this output may take over (same bytes, element by element), or -1.
  virtual int InPlaceInput(int output) const {
    (void)output;
    return -1;
  }

  // Called once, before the first Run().
  virtual void Bind(const KernelMemory& memory) = 0;
  virtual void Run(const RunContext& context) = 0;

 protected:
  std::vector<Layout> input_layouts_;
  std::vector<Layout> output_layouts_;
  size_t workspace_bytes_ = 0;
};

// Which 3x3 convolutions go by Winograd's algorithm.
enum class Winograd : uint8_t {
  kNever,
  kWhereFaster,
  kWherePossible  // for tests
};

// What plans store activations and their gradients in, and what convolutions and products multiply
// (op.h). Weights and what belongs to them stay fp32; kTf32 stores fp32 and rounds what is
// multiplied.
enum class Precision : uint8_t { kFp32, kTf32, kBf16, kFp16 };
std::string_view Name(Precision precision);
// Throws ConfigError that names what there is.
Precision ParsePrecision(std::string_view name);
DType ActivationType(Precision precision);  // in which activations are stored

// Memory that kernels can work on, freed with the last copy of the pointer.
using DeviceMemory = std::shared_ptr<std::byte>;

// Of a Buffer.
DeviceMemory AllocateOnHost(size_t bytes);

// Kernels to be run again and again, all at once, in the memory that they were given. Ends before
// them and the backend.
class Recording {
 public:
  virtual ~Recording() = default;
  // In the order of the kernels; waits for nothing.
  virtual void Replay() = 0;
};

// What a device tells the host without being waited for. Ends before the backend.
class Download {
 public:
  virtual ~Download() = default;
  // Copies as many bytes as it was made for, in the order of the kernels; waits for nothing.
  virtual void Begin(const std::byte* device) = 0;
  // The bytes of the last Begin(), which this waits for; valid until the next.
  virtual const std::byte* Wait() = 0;
};

class ArenaMath;  // arena_math.h

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  // For plans that are made from now on. Throws ConfigError that says why it cannot be had here;
  // this one can fp32 only.
  virtual void SetPrecision(Precision precision);
  DType activation_dtype() const { return activation_dtype_; }
  // Of plans that are made from now on: which convolutions take Winograd's algorithm, several times
  // coarser than fp32's direct sums and faster. A GPU's library decides for itself.
  void UseWinograd(Winograd use) { winograd_ = use; }

  // Zeroed, aligned to Buffer::kAlignment. Throws DeviceMemoryError when there is not so much.
  // Where !on_host(), only kernels and copies may touch it.
  virtual DeviceMemory Allocate(size_t bytes) const;
  virtual bool on_host() const { return true; }
  // The same for tests: slow, but the host may touch it too while no kernel runs.
  virtual DeviceMemory AllocateShared(size_t bytes) const { return Allocate(bytes); }

  // The host's own, zeroed, from which Upload() is fast.
  virtual DeviceMemory AllocateStaging(size_t bytes) const;
  // What Allocate() has left; nothing where that is not known.
  virtual std::optional<size_t> FreeBytes() const { return std::nullopt; }

  // Between kernels' memory and the host's, in the order of the kernels. On return the host's bytes
  // are there, or have been read.
  virtual void CopyToHost(std::byte* host, const std::byte* device, size_t bytes) const;
  virtual void CopyFromHost(std::byte* device, const std::byte* host, size_t bytes) const;
  // Within kernels' memory, in the order of the kernels.
  void Copy(std::byte* to, const std::byte* from, size_t bytes) const;
  // Null where on_host(): there is nothing to wait for.
  virtual std::unique_ptr<Download> MakeDownload(size_t bytes) const {
    (void)bytes;
    return nullptr;
  }
  // CopyFromHost() beside the kernels, in the order of uploads, for kernels that are run after the
  // next BeginReading(). Comes after the kernels before the last EndReading(), and no others. The
  // host's bytes must stay as they are until WaitForUploads() has returned.
  virtual void Upload(std::byte* device, const std::byte* host, size_t bytes) const {
    CopyFromHost(device, host, bytes);
  }
  virtual void WaitForUploads() const {}
  virtual void BeginReading() const {}
  virtual void EndReading() const {}

  // Records what `enqueue` runs of kernels and of ArenaMath, and sums of it, instead of running it.
  // Null where the backend cannot. Must stay out of it: copies to and from the host, and what
  // brings a step's numbers, BeginRun(), Updater::BeginStep() and ArenaMath::UpdateAverage().
  virtual bool CanRecord() const { return false; }
  virtual std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) const {
    (void)enqueue;
    return nullptr;
  }

  // What is done to arenas outside of graphs; null where on_host(): there anybody can do it.
  virtual const ArenaMath* arena_math() const { return nullptr; }

  // Before the kernels of a run.
  virtual void BeginRun(const RunContext& context) const { (void)context; }
  // Returns when all kernels that were run are done; throws DeviceError where one failed.
  virtual void Synchronize() const {}

  // Whether MakeKernel can make this; rewrites ask before they fuse.
  virtual bool Supports(const OpSpec& spec) const = 0;

  // Throws InternalError when !Supports(spec).
  virtual std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const = 0;

  // Copies between any two layouts of one shape, and from fp32 to a narrower type or back. Returns
  // when that is done.
  void Reorder(const Tensor& from, const Tensor& to) const;

  // Worker threads that kernels use.
  virtual int threads() const = 0;
  // About so many operations of convolutions take the time in which a byte is moved.
  virtual double FlopsOfByte() const { return 10; }

 protected:
  DType activation_dtype_ = DType::kF32;
  Winograd winograd_ = Winograd::kWhereFaster;
};

// Plain loops in the dtype of the tensors (fp32, or fp64 to check everything else). bf16 and fp16
// are modeled: stored rounded, computed in fp32.
std::unique_ptr<Backend> MakeReferenceBackend(int threads);

// oneDNN and our own vector kernels, fp32 or bf16. Throws ConfigError when the program was built
// without oneDNN.
std::unique_ptr<Backend> MakeOneDnnBackend(int threads);
bool OneDnnAvailable();

// cuDNN, cuBLASLt and our own kernels on one GPU, in every precision that it multiplies in. They
// live in a library of their own, libcarole_cuda.so beside the program, which is loaded when it is
// asked for: so the program starts where there is no CUDA, and what is missing is said in one line.
struct CudaOptions {
  int device = 0;            // among those that CUDA_VISIBLE_DEVICES lets through
  bool times_plans = false;  // for the fastest convolutions, kept in a file (core/choice_cache.h)
  bool takes_optional = false;  // for tests: what else timing would choose, wherever it is possible
};
// Throws ConfigError when the library or one that it needs is missing, DeviceError when there is no
// such GPU or its driver is too old.
std::unique_ptr<Backend> MakeCudaBackend(const CudaOptions& options);
int CountGpus();       // of this process; throws as MakeCudaBackend()
bool HasCudaDriver();  // loads nothing else

std::string WhyNoGpu();  // why there is no GPU to use; empty when there is one

// The backends that train.
struct BackendEntry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(int threads);
  std::string (*problem)();  // why it cannot be had here; empty when it can
};
// On any machine, the fastest first.
inline constexpr BackendEntry kBackends[] = {
    {.name = "onednn",
     .make = MakeOneDnnBackend,
     .problem = [] { return std::string(OneDnnAvailable() ? "" : "built without oneDNN"); }},
    {.name = "reference", .make = MakeReferenceBackend, .problem = [] { return std::string(); }},
};
// On the first GPU.
inline constexpr BackendEntry kCudaBackend = {
    .name = "cuda", .make = [](int) { return MakeCudaBackend({}); }, .problem = WhyNoGpu};

}  // namespace carole
