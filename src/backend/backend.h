// The interface to compute kernels and to the memory that they work on.
//
// A backend makes a kernel for one operation and the layouts of its inputs. An Executable
// (src/graph/plan/executable.h) gives the kernel its memory once and runs it in every step.
//
// Backends: reference/ (plain loops, the oracle of the tests), onednn/ (CPU), cuda/ (GPU). One
// suite of cases tests all of them (tests/backend/conformance_test.cpp). Start reading with
// ops/op.h, then this file.
//
// All code outside of src/backend treats each backend as a device with its own memory and its own
// order of work. The host is a device, too (host/backend.h): its copies are memcpy, and all work
// has finished when the call that enqueues it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/ops/op.h"
#include "src/tensor/tensor.h"

namespace carole {

// The arguments of kernels that change from run to run.
struct RunContext {
  // Seed, step and sample number are the key of the random numbers for dropout.
  uint64_t seed = 0;
  int64_t step = 0;
  // Index of row 0 in the global batch. It makes dropout independent of the number of ranks.
  int64_t first_sample = 0;
  // The first `valid_rows` rows of the batch are samples, the others are filler; 0 means that all
  // rows are samples. kNoRows (no row is a sample) is allowed only with sum_over_ranks.
  int64_t valid_rows = 0;
  static constexpr int64_t kNoRows = -1;
  // Replaces the values by their sums over all ranks; every rank gets the same bits. The values lie
  // in device memory, and the sum runs in the order of the kernels. If this is set, batch norm
  // takes its training statistics from the valid rows of all ranks, else from those of this rank.
  std::function<void(std::span<double>)> sum_over_ranks;
};

// The memory of one kernel, fixed for the kernel's lifetime. Absent inputs and outputs have
// data == nullptr.
struct KernelMemory {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  // workspace_bytes() bytes, aligned to Buffer::kAlignment, with undefined contents.
  std::byte* workspace = nullptr;
};

// One operation that is ready to run. Not thread-safe. Runs on the caller's thread and on the
// backend's own threads.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // The layouts that the kernel reads and writes. The Executable inserts a reorder if a tensor has
  // another layout. For an input that was specified with layout Any (a parameter without a layout
  // so far), this is the layout that the kernel chose.
  const std::vector<Layout>& input_layouts() const { return input_layouts_; }
  const std::vector<Layout>& output_layouts() const { return output_layouts_; }
  size_t workspace_bytes() const { return workspace_bytes_; }

  // The index of the input whose memory this output may overwrite, or -1. Both have the same size,
  // and element i of the output needs only element i of that input.
  virtual int InPlaceInput(int output) const {
    (void)output;
    return -1;
  }

  // Sets the memory. Called once, before the first Run().
  virtual void Bind(const KernelMemory& memory) = 0;
  // Computes the outputs. On a device, only enqueues the work (see Backend::Synchronize()).
  virtual void Run(const RunContext& context) = 0;

 protected:
  std::vector<Layout> input_layouts_;
  std::vector<Layout> output_layouts_;
  size_t workspace_bytes_ = 0;
};

// Which 3x3 convolutions use Winograd's algorithm.
enum class Winograd : uint8_t {
  kNever,
  kIfFaster,
  kIfPossible  // for tests
};

// The number format in which activations and their gradients are stored, and in which convolutions
// and matrix products multiply (see ops/op.h). Weights and everything that belongs to them stay
// fp32. kTf32 stores fp32 and rounds only the factors of products.
enum class Precision : uint8_t { kFp32, kTf32, kBf16, kFp16 };
inline constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kBf16, Precision::kFp16,
                                            Precision::kTf32};
std::string_view Name(Precision precision);
DType ActivationType(Precision precision);  // the type in which activations are stored

// Memory that kernels can work on: host memory for CPU backends, GPU memory for CUDA. It is freed
// with the last copy of the pointer.
using DeviceMemory = std::shared_ptr<std::byte>;

// Host memory from a Buffer: zeroed and aligned to Buffer::kAlignment.
DeviceMemory AllocateOnHost(size_t bytes);

// A sequence of kernel launches that was captured once and can be replayed with one call (a CUDA
// graph). It uses the memory that its kernels were bound to. Must be destroyed before these kernels
// and the backend.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Enqueues the captured work after the work that was enqueued so far. Does not block.
  virtual void Replay() = 0;
};

// An asynchronous copy of a fixed number of bytes from the device to the host, for values that
// later kernels overwrite. Must be destroyed before the backend.
class Download {
 public:
  virtual ~Download() = default;
  // Enqueues a copy from `device` after the kernels that were enqueued so far. Does not block.
  virtual void Begin(const std::byte* device) = 0;
  // Waits for the copy of the last Begin() and returns its bytes. They are valid until the next
  // Begin().
  virtual const std::byte* Wait() = 0;
};

// Host memory for the inputs of a graph, from which they get to device memory. Must be destroyed
// before the backend.
class InputBuffers {
 public:
  virtual ~InputBuffers() = default;
  // Returns the host memory of an input. It keeps its contents. Waits until the last Upload() has
  // read it, so that the caller may change it.
  virtual std::byte* HostMemory(size_t index) = 0;
  // Enqueues the copies of all inputs to device memory, before the kernels that are enqueued
  // later. They overlap with the kernels that were enqueued so far. Does not block.
  virtual void Upload() = 0;
};

// The CUDA stream in which all work of a backend runs, for other libraries that use its memory.
struct GpuStream {
  int device = 0;          // CUDA device number
  void* stream = nullptr;  // cudaStream_t
};

class ArenaMath;  // arena_math.h

// A stopwatch in device memory, zeroed at first. Its times are those of the device's clock, so that
// they tell what a device did and waited for, and not when the host launched it.
struct DeviceStopwatch {
  static constexpr int kParts = 4;
  uint64_t last = 0;            // end of the last lap; 0: there was none
  uint64_t parts[kParts] = {};  // sums of laps, in nanoseconds

  // Adds the time since the last lap to a part. The time before the first lap does not count.
  constexpr void EndLap(int part, uint64_t now) {
    if (last != 0) parts[part] += now - last;
    last = now;
  }
};

// The memory of a device.
struct MemoryUse {
  size_t used_bytes = 0, total_bytes = 0;
};

// Makes kernels and owns the order in which they run. All work is enqueued in one order, "the order
// of the kernels"; on a GPU this is one stream, on the CPU each call has finished when it returns.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  // Sets the precision of the Executables that are made from now on. The default implementation
  // accepts fp32 only. Throws ConfigError, which says why, if the precision is not available here.
  virtual void SetPrecision(Precision precision);
  DType activation_dtype() const { return activation_dtype_; }
  // Says which convolutions of the Executables that are made from now on use Winograd's algorithm.
  // It is faster than direct fp32 sums, and its rounding errors are several times larger. On a GPU
  // the library decides, and this has no effect.
  void UseWinograd(Winograd use) { winograd_ = use; }

  // Whether device memory is memory of its own, which the host cannot access. Its size is known
  // (FreeBytes()), ranks do not share it, and each access of the host needs a copy.
  virtual bool has_own_memory() const = 0;
  // Whether kernels run on another processor, after the calls that enqueue them have returned.
  // Otherwise they run on the caller's cores and have finished when these calls return.
  virtual bool is_asynchronous() const = 0;

  // Returns device memory, zeroed and aligned to Buffer::kAlignment. If has_own_memory(), only
  // kernels and the copies below may access it. Throws DeviceMemoryError if there is not enough.
  virtual DeviceMemory Allocate(size_t bytes) const = 0;
  // As Allocate(), for tests: slow memory that the host may access too while no kernel runs.
  virtual DeviceMemory AllocateShared(size_t bytes) const { return Allocate(bytes); }
  // The bytes that Allocate() has left, or nullopt if that is not known.
  virtual std::optional<size_t> FreeBytes() const { return std::nullopt; }
  // Returns how much of the device's memory this process and others use, or nullopt if kernels use
  // host memory.
  virtual std::optional<MemoryUse> memory_use() const { return std::nullopt; }
  // Says that the contents of a part of device memory are not needed any more. If it is host
  // memory, its pages go back to the operating system until they are written again.
  virtual void DiscardContents(std::byte* memory, size_t bytes) const {
    (void)memory;
    (void)bytes;
  }

  // Copy between device and host memory, in the order of the kernels. They return when the host's
  // bytes have been written or read.
  virtual void CopyToHost(std::byte* host, const std::byte* device, size_t bytes) const = 0;
  virtual void CopyFromHost(std::byte* device, const std::byte* host, size_t bytes) const = 0;
  // Copies within device memory, in the order of the kernels.
  void Copy(std::byte* to, const std::byte* from, size_t bytes) const;
  virtual std::unique_ptr<Download> MakeDownload(size_t bytes) const = 0;
  // Makes host memory for inputs that are in these ranges of device memory.
  virtual std::unique_ptr<InputBuffers> MakeInputBuffers(
      const std::vector<std::span<std::byte>>& inputs) const = 0;

  // Captures the work that `enqueue` enqueues instead of running it: kernels, ArenaMath, and sums
  // of collectives. Returns null if !CanCapture(). `enqueue` must not copy to or from the host, nor
  // call BeginRun(), Updater::BeginStep() or ArenaMath::UpdateAverage(): these bring the numbers of
  // one step, which a replay would repeat.
  virtual bool CanCapture() const { return false; }
  virtual std::unique_ptr<CapturedWork> Capture(const std::function<void()>& enqueue) const {
    (void)enqueue;
    return nullptr;
  }

  // Arithmetic on device memory outside of graphs.
  virtual const ArenaMath& arena_math() const = 0;
  // The stream of a GPU; nullopt if the backend computes elsewhere.
  virtual std::optional<GpuStream> gpu_stream() const { return std::nullopt; }

  // Brings the context to the device. Called before the kernels of each run.
  virtual void BeginRun(const RunContext& context) const { (void)context; }
  // Ends a lap of a stopwatch in device memory, in the order of the kernels. May be captured. The
  // default is for backends whose kernels have finished when the calls that enqueue them return.
  virtual void EndLap(DeviceStopwatch* watch, int part) const;
  // Writes the time of the device's clock, in nanoseconds, to device memory, in the order of
  // `stream`: that of the kernels (gpu_stream()), or one of another library. May be captured. For
  // the default, see EndLap().
  virtual void WriteTime(void* stream, uint64_t* to) const;
  // Waits until all kernels that were enqueued have finished. Throws DeviceError if one failed.
  virtual void Synchronize() const {}

  // Whether MakeKernel() can make a kernel for `spec`. Rewrites ask this before they fuse.
  virtual bool Supports(const OpSpec& spec) const = 0;

  // Makes a kernel. Throws InternalError if !Supports(spec).
  virtual std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const = 0;

  // Copies a tensor to another layout, or from fp32 to a 16-bit type or back. The shapes are equal.
  // Returns when the copy has finished.
  void Reorder(const Tensor& from, const Tensor& to) const;

  // Number of worker threads that kernels use.
  virtual int threads() const = 0;
  // The approximate number of floating-point operations that a convolution does in the time that it
  // takes to move one byte.
  virtual double FlopsPerByte() const { return 10; }

 protected:
  DType activation_dtype_ = DType::kF32;
  Winograd winograd_ = Winograd::kIfFaster;
};

// The reference backend: plain loops in the dtype of the tensors. fp64 serves to check the other
// backends. bf16 and fp16 are emulated: values are stored rounded and computed in fp32.
std::unique_ptr<Backend> MakeReferenceBackend(int threads);

// The CPU backend: oneDNN and our own vector kernels, in fp32 or bf16. Throws ConfigError if the
// program was built without oneDNN.
std::unique_ptr<Backend> MakeOneDnnBackend(int threads);
bool OneDnnAvailable();

// The GPU backend: cuDNN, cuBLASLt and our own kernels on one GPU, in every precision that the GPU
// supports. Its code is in a separate library, libcarole_cuda.so, next to the program. The library
// is loaded on first use, so that the program also starts on machines without CUDA and can say in
// one line what is missing.
struct CudaOptions {
  int device = 0;  // number among the GPUs that CUDA_VISIBLE_DEVICES shows
  // Times alternatives to find the fastest convolutions, and keeps the answers in a file
  // (src/core/files/tuning_cache.h).
  bool autotune = false;
  // For tests: uses each alternative that timing could choose, whenever it is possible.
  bool force_optional_kernels = false;
};
// Throws ConfigError if the library or one that it needs is missing, DeviceError if there is no
// such GPU or its driver is too old.
std::unique_ptr<Backend> MakeCudaBackend(const CudaOptions& options);
// Returns the number of GPUs that this process sees. Throws as MakeCudaBackend() does.
int CountGpus();
// Returns the PCI bus id of a GPU in the form of /sys, such as "0000:3b:00.0". Throws as
// CountGpus() does.
std::string GpuBusId(int device);
// Returns whether the NVIDIA driver is installed. Loads no other library.
bool HasCudaDriver();

// Says why no GPU can be used; empty if one can.
std::string GpuUnavailableReason();

// A backend that users can select by its name.
struct BackendEntry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(int threads);
  std::string (*unavailable_reason)();  // why it cannot be used here; empty if it can
};
// The backends for machines without a GPU, the fastest first.
inline constexpr BackendEntry kBackends[] = {
    {.name = "onednn",
     .make = MakeOneDnnBackend,
     .unavailable_reason =
         [] { return std::string(OneDnnAvailable() ? "" : "built without oneDNN"); }},
    {.name = "reference",
     .make = MakeReferenceBackend,
     .unavailable_reason = [] { return std::string(); }},
};
// The backend for the first GPU.
inline constexpr BackendEntry kCudaBackend = {.name = "cuda",
                                              .make = [](int) { return MakeCudaBackend({}); },
                                              .unavailable_reason = GpuUnavailableReason};

}  // namespace carole
