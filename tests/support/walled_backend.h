// An emulated device that detects forbidden accesses to device memory, without a GPU.
//
// "Walled" memory is protected by PROT_NONE, except while a kernel or a copy runs. Kernels run as
// late as a stream allows. So a test crashes if the host reads device memory, and gets wrong
// results if the host changes data that is still to be uploaded.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "src/backend/arena_math.h"
#include "src/backend/backend.h"
#include "src/backend/staged_inputs.h"
#include "src/core/check.h"

namespace carole::testing {

// When copies run that may overlap with kernels: as early or as late as they may.
enum class CopyTime : uint8_t { kEarly, kLate };

// A stream: the work that was enqueued, in order, and the walled memory that it uses. Work runs
// only in calls that wait for it, on the calling thread.
class WalledStream {
 public:
  explicit WalledStream(CopyTime copy_time) : copy_time_(copy_time) {}

  void Add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    (captured_ != nullptr ? *captured_ : work_).push_back(std::move(work));
  }

  // Runs all work.
  void Drain() {
    Open([] {});
  }
  // Runs all work, and then `last`, while the memory is accessible.
  void Open(const std::function<void()>& last) {
    const std::lock_guard lock(mutex_);
    if (num_open_++ == 0) SetProtection(PROT_READ | PROT_WRITE);
    while (!work_.empty()) RunNext();
    last();
    if (--num_open_ == 0) SetProtection(PROT_NONE);
  }

  // Runs work until is_done() returns true.
  void RunUntil(const std::function<bool()>& is_done) {
    const std::lock_guard lock(mutex_);
    if (num_open_++ == 0) SetProtection(PROT_READ | PROT_WRITE);
    while (!is_done()) RunNext();
    if (--num_open_ == 0) SetProtection(PROT_NONE);
  }
  size_t num_queued() {
    const std::lock_guard lock(mutex_);
    return work_.size();
  }
  // Whether this thread is running work of this stream.
  bool is_running() {
    const std::lock_guard lock(mutex_);
    return runner_ == std::this_thread::get_id();
  }

  // Captures the work that `enqueue` adds. It runs when the result is replayed.
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& enqueue);
  bool is_capturing() {
    const std::lock_guard lock(mutex_);
    return captured_ != nullptr;
  }

  // Sets the context of the current run, in stream order. Kernels read it when they run.
  void SetContext(const RunContext& context) {
    Add([this, context] { context_ = context; });
  }
  const RunContext& context() const { return context_; }

  // The functions of UploadQueue: Copy(), BeginReading(), EndReading() and WaitOnHost(). Uploads
  // overlap with other work.
  void Upload(std::function<void()> copy) {
    const std::lock_guard lock(mutex_);
    CAROLE_CHECK(captured_ == nullptr, "Upload() during a capture");
    copies_.push_back({std::move(copy), num_ends_});
    ++num_copies_;
    if (copy_time_ == CopyTime::kEarly) MakeCopies(num_copies_);
  }
  void BeginReading() {
    const std::lock_guard lock(mutex_);
    CAROLE_CHECK(captured_ == nullptr, "BeginReading() during a capture");
    Add([this, until = num_copies_] { MakeCopies(until); });
  }
  void EndReading() {
    const std::lock_guard lock(mutex_);
    CAROLE_CHECK(captured_ == nullptr, "EndReading() during a capture");
    Add([this, number = ++num_ends_] {
      ends_done_ = number;
      if (copy_time_ == CopyTime::kEarly) MakeCopies(num_copies_);
    });
  }
  // Early copies run before all work except that which they wait for, late copies after all work.
  void WaitForUploads() {
    const std::lock_guard lock(mutex_);
    if (copy_time_ == CopyTime::kLate) Drain();
    if (num_open_++ == 0) SetProtection(PROT_READ | PROT_WRITE);
    for (MakeCopies(num_copies_); copies_done_ < num_copies_; MakeCopies(num_copies_)) RunNext();
    if (--num_open_ == 0) SetProtection(PROT_NONE);
  }

  bool Holds(const void* memory) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(regions_, [&](const auto& region) {
      return region.first <= memory && memory < region.first + region.second;
    });
  }

  std::byte* Allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CAROLE_CHECK(memory != MAP_FAILED, "mmap of {} bytes failed", bytes);
    regions_.push_back({static_cast<std::byte*>(memory), bytes});
    return regions_.back().first;
  }
  void Free(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    Drain();
    WaitForUploads();
    const auto region = std::ranges::find(regions_, memory, &std::pair<std::byte*, size_t>::first);
    munmap(region->first, region->second);
    regions_.erase(region);
  }

 private:
  using Work = std::deque<std::function<void()>>;
  struct Copy {
    std::function<void()> work;
    uint64_t after;  // the number of the EndReading() that it waits for
  };
  class CapturedStreamWork;

  void RunNext() {
    const auto work = std::move(work_.front());
    work_.pop_front();
    const auto runner = std::exchange(runner_, std::this_thread::get_id());
    work();
    runner_ = runner;
  }
  // Runs the copies before copy number `until` that need not wait for an EndReading().
  void MakeCopies(uint64_t until) {
    while (copies_done_ < until && copies_.front().after <= ends_done_) {
      const auto copy = std::move(copies_.front().work);
      copies_.pop_front();
      ++copies_done_;
      if (num_open_ == 0) SetProtection(PROT_READ | PROT_WRITE);
      copy();
      if (num_open_ == 0) SetProtection(PROT_NONE);
    }
  }
  void SetProtection(int protection) const {
    for (const auto& [memory, bytes] : regions_) mprotect(memory, bytes, protection);
  }

  const CopyTime copy_time_;
  std::recursive_mutex mutex_;
  Work work_;
  std::shared_ptr<Work> captured_;
  RunContext context_;
  std::deque<Copy> copies_;
  uint64_t num_copies_ = 0, copies_done_ = 0;
  uint64_t num_ends_ = 0, ends_done_ = 0;
  int num_open_ = 0;
  std::thread::id runner_;
  std::vector<std::pair<std::byte*, size_t>> regions_;
};

class WalledStream::CapturedStreamWork : public CapturedWork {
 public:
  CapturedStreamWork(WalledStream& stream, std::shared_ptr<Work> work)
      : stream_(stream), work_(std::move(work)) {}
  ~CapturedStreamWork() override { stream_.Drain(); }
  void Replay() override {
    stream_.Add([work = work_] {
      for (const auto& one : *work) one();
    });
  }

 private:
  WalledStream& stream_;
  const std::shared_ptr<Work> work_;
};

inline std::unique_ptr<CapturedWork> WalledStream::Capture(const std::function<void()>& enqueue) {
  const auto work = std::make_shared<Work>();
  {
    const std::lock_guard lock(mutex_);
    captured_ = work;
  }
  enqueue();
  const std::lock_guard lock(mutex_);
  captured_ = nullptr;
  return std::make_unique<CapturedStreamWork>(*this, work);
}

using SharedStream = std::shared_ptr<WalledStream>;

class WalledKernel : public Kernel {
 public:
  WalledKernel(std::unique_ptr<Kernel> inner, SharedStream stream)
      : inner_(std::move(inner)), stream_(std::move(stream)) {
    input_layouts_ = inner_->input_layouts();
    output_layouts_ = inner_->output_layouts();
    workspace_bytes_ = inner_->workspace_bytes();
  }
  ~WalledKernel() override { stream_->Drain(); }

  int InPlaceInput(int output) const override { return inner_->InPlaceInput(output); }
  void Bind(const KernelMemory& memory) override { inner_->Bind(memory); }
  void Run(const RunContext&) override {
    stream_->Add([this] { inner_->Run(stream_->context()); });
  }

 private:
  const std::unique_ptr<Kernel> inner_;
  const SharedStream stream_;
};

class WalledUpdater : public Updater {
 public:
  WalledUpdater(std::unique_ptr<Updater> inner, SharedStream stream)
      : inner_(std::move(inner)), stream_(std::move(stream)) {}
  ~WalledUpdater() override { stream_->Drain(); }

  void BeginStep(const UpdateCoefficients& c, bool continues) override {
    CAROLE_CHECK(!stream_->is_capturing(), "BeginStep() during a capture");
    stream_->Add([=, this] { inner_->BeginStep(c, continues); });
  }
  void Inspect(Segment range) override {
    stream_->Add([this, range] { inner_->Inspect(range); });
  }
  void InspectLoss(const Tensor& loss) override {
    stream_->Add([this, loss] { inner_->InspectLoss(loss); });
  }
  void Update() override {
    stream_->Add([this] { inner_->Update(); });
  }
  const UpdateSums* sums() const override { return inner_->sums(); }

 private:
  const std::unique_ptr<Updater> inner_;
  const SharedStream stream_;
};

// Runs the functions of `inner` in stream order.
class WalledMath : public ArenaMath {
 public:
  WalledMath(const ArenaMath& inner, SharedStream stream)
      : inner_(inner), stream_(std::move(stream)) {}

  void Copy(std::byte* to, const std::byte* from, size_t bytes) const override {
    stream_->Add([=, this] { inner_.Copy(to, from, bytes); });
  }
  void Swap(std::byte* a, std::byte* b, size_t bytes) const override {
    stream_->Add([=, this] { inner_.Swap(a, b, bytes); });
  }
  void CopyUnless(const bool* flag, std::byte* to, const std::byte* from,
                  size_t bytes) const override {
    stream_->Add([=, this] { inner_.CopyUnless(flag, to, from, bytes); });
  }
  void Add(DType dtype, std::byte* to, const std::byte* from, int64_t count) const override {
    stream_->Add([=, this] { inner_.Add(dtype, to, from, count); });
  }
  void Scale(DType dtype, std::byte* to, int64_t count, double factor) const override {
    stream_->Add([=, this] { inner_.Scale(dtype, to, count, factor); });
  }
  void UpdateAverage(const bool* flag, DType dtype, std::byte* to, const std::byte* from,
                     int64_t count, double one_minus_decay) const override {
    CAROLE_CHECK(!stream_->is_capturing(), "UpdateAverage() during a capture");
    stream_->Add(
        [=, this] { inner_.UpdateAverage(flag, dtype, to, from, count, one_minus_decay); });
  }
  std::vector<uint64_t> Hashes(const float* arena,
                               const std::vector<Segment>& ranges) const override {
    std::vector<uint64_t> hashes;
    stream_->Add([&] { hashes = inner_.Hashes(arena, ranges); });
    stream_->Drain();
    return hashes;
  }
  std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const override {
    return std::make_unique<WalledUpdater>(inner_.MakeUpdater(job), stream_);
  }

 private:
  const ArenaMath& inner_;
  const SharedStream stream_;
};

// The uploads of a stream. Begin and end of reading must not be captured.
class WalledUploads : public UploadQueue {
 public:
  explicit WalledUploads(SharedStream stream) : stream_(std::move(stream)) {}

  void Copy(std::byte* device, const std::byte* host, size_t bytes) override {
    stream_->Upload([=] { std::copy_n(host, bytes, device); });
  }
  void WaitOnHost() override { stream_->WaitForUploads(); }
  void BeginReading() override { stream_->BeginReading(); }
  void EndReading() override { stream_->EndReading(); }

 private:
  const SharedStream stream_;
};

class WalledDownload : public Download {
 public:
  WalledDownload(SharedStream stream, size_t bytes) : stream_(std::move(stream)), host_(bytes) {}
  ~WalledDownload() override { stream_->Drain(); }

  void Begin(const std::byte* device) override {
    CAROLE_CHECK(!stream_->is_capturing(), "Download::Begin() during a capture");
    ++begun_;
    stream_->Add([this, device] {
      std::copy_n(device, host_.size(), host_.data());
      ++done_;
    });
  }
  const std::byte* Wait() override {
    stream_->RunUntil([this] { return done_ == begun_; });
    return host_.data();
  }

 private:
  const SharedStream stream_;
  std::vector<std::byte> host_;
  int begun_ = 0, done_ = 0;
};

class WalledBackend : public Backend {
 public:
  // Runs the kernels of `inner`, which must be a backend for the host.
  explicit WalledBackend(std::unique_ptr<Backend> inner, CopyTime copy_time = CopyTime::kLate)
      : inner_(std::move(inner)),
        stream_(std::make_shared<WalledStream>(copy_time)),
        math_(inner_->arena_math(), stream_),
        uploads_(stream_) {}

  std::string_view name() const override { return "walled"; }
  int threads() const override { return inner_->threads(); }
  void SetPrecision(Precision precision) override {
    inner_->SetPrecision(precision);
    activation_dtype_ = inner_->activation_dtype();
  }
  bool has_own_memory() const override { return true; }
  bool is_asynchronous() const override { return true; }
  bool Supports(const OpSpec& spec) const override { return inner_->Supports(spec); }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    return std::make_unique<WalledKernel>(inner_->MakeKernel(spec), stream_);
  }
  DeviceMemory Allocate(size_t bytes) const override {
    if (bytes == 0) return nullptr;
    return {stream_->Allocate(bytes), [stream = stream_](std::byte* p) { stream->Free(p); }};
  }
  std::optional<size_t> FreeBytes() const override { return free_bytes; }
  void CopyToHost(std::byte* host, const std::byte* device, size_t bytes) const override {
    stream_->Add([=] { std::copy_n(device, bytes, host); });
    stream_->Drain();
  }
  void CopyFromHost(std::byte* device, const std::byte* host, size_t bytes) const override {
    stream_->Add([=] { std::copy_n(host, bytes, device); });
    stream_->Drain();
  }
  std::unique_ptr<Download> MakeDownload(size_t bytes) const override {
    CAROLE_CHECK(!stream_->is_capturing(), "MakeDownload() during a capture");
    return std::make_unique<WalledDownload>(stream_, bytes);
  }
  std::unique_ptr<InputBuffers> MakeInputBuffers(
      const std::vector<std::span<std::byte>>& inputs) const override {
    return MakeStagedInputs(*this, uploads_, AllocateOnHost, inputs);
  }
  bool CanCapture() const override { return true; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& enqueue) const override {
    return stream_->Capture(enqueue);
  }
  void BeginRun(const RunContext& context) const override {
    CAROLE_CHECK(!stream_->is_capturing(), "BeginRun() during a capture");
    stream_->SetContext(context);
    stream_->Add([this, context] { inner_->BeginRun(context); });
  }
  void EndLap(DeviceStopwatch* watch, int part) const override {
    stream_->Add([=, this] { inner_->EndLap(watch, part); });
  }
  void WriteTime(void* stream, uint64_t* to) const override {
    static_cast<WalledStream*>(stream)->Add([=, this] { inner_->WriteTime(stream, to); });
  }
  void Synchronize() const override { stream_->Drain(); }
  const ArenaMath& arena_math() const override { return math_; }
  std::optional<GpuStream> gpu_stream() const override {
    return GpuStream{.stream = stream_.get()};
  }

  const SharedStream& stream() const { return stream_; }

  std::optional<size_t> free_bytes;

 private:
  const std::unique_ptr<Backend> inner_;
  const SharedStream stream_;
  const WalledMath math_;
  mutable WalledUploads uploads_;
};

}  // namespace carole::testing
