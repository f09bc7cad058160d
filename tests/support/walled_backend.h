// A device without a GPU: a backend whose kernels run as late as a stream allows, on memory that
// nobody else can touch (PROT_NONE but while a kernel or a copy runs). Whoever reads device memory
// from the host, or touches what is still to be uploaded, is found out.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/backend/arena_math.h"
#include "src/backend/backend.h"
#include "src/backend/update_rules.h"
#include "src/core/check.h"
#include "src/optim/host_updater.h"

namespace carole::testing {

// What has been asked for, in order, and the memory that it works on.
class WalledStream {
 public:
  void Add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }

  // Does all of it.
  void Drain() {
    Open([] {});
  }
  // And then this, while the memory can be touched.
  void Open(const std::function<void()>& last) {
    const std::lock_guard lock(mutex_);
    SetProtection(PROT_READ | PROT_WRITE);
    for (const auto& work : std::exchange(work_, {})) work();
    last();
    SetProtection(PROT_NONE);
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
    CAROLE_CHECK(memory != MAP_FAILED, "no memory: {} bytes", bytes);
    regions_.push_back({static_cast<std::byte*>(memory), bytes});
    return regions_.back().first;
  }
  void Free(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    Drain();
    const auto region = std::ranges::find(regions_, memory, &std::pair<std::byte*, size_t>::first);
    munmap(region->first, region->second);
    regions_.erase(region);
  }

 private:
  void SetProtection(int protection) const {
    for (const auto& [memory, bytes] : regions_) mprotect(memory, bytes, protection);
  }

  std::recursive_mutex mutex_;
  std::vector<std::function<void()>> work_;
  std::vector<std::pair<std::byte*, size_t>> regions_;
};

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
  void Run(const RunContext& context) override {
    stream_->Add([this, context] { inner_->Run(context); });
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

  void BeginStep(const UpdateCoefficients& c) override {
    stream_->Add([this, c] { inner_->BeginStep(c); });
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
  UpdateSums Sums() const override {
    stream_->Drain();
    return inner_->Sums();
  }

 private:
  const std::unique_ptr<Updater> inner_;
  const SharedStream stream_;
};

// With `inner` null, on the host.
class WalledMath : public ArenaMath {
 public:
  WalledMath(const ArenaMath* inner, SharedStream stream)
      : inner_(inner), stream_(std::move(stream)) {}

  void Copy(std::byte* to, const std::byte* from, size_t bytes) const override {
    stream_->Add([=, this] { inner_ ? inner_->Copy(to, from, bytes) : Move(to, from, bytes); });
  }
  void Swap(float* a, float* b, int64_t n) const override {
    stream_->Add(
        [=, this] { inner_ ? inner_->Swap(a, b, n) : (void)std::swap_ranges(a, a + n, b); });
  }
  void Add(float* to, const float* from, int64_t n) const override {
    stream_->Add([=, this] {
      if (inner_ != nullptr) return inner_->Add(to, from, n);
      for (int64_t i = 0; i < n; ++i) to[i] += from[i];
    });
  }
  void Approach(float* to, const float* from, int64_t n, float rest) const override {
    stream_->Add([=, this] {
      if (inner_ != nullptr) return inner_->Approach(to, from, n, rest);
      for (int64_t i = 0; i < n; ++i) to[i] = update_rules::Approached(to[i], from[i], rest);
    });
  }
  void Scale(float* to, int64_t n, float factor) const override {
    stream_->Add([=, this] {
      if (inner_ != nullptr) return inner_->Scale(to, n, factor);
      for (int64_t i = 0; i < n; ++i) to[i] *= factor;
    });
  }
  std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const override {
    return std::make_unique<WalledUpdater>(
        inner_ != nullptr ? inner_->MakeUpdater(job) : optim::MakeHostUpdater(job, 1), stream_);
  }

  int device() const override { return 0; }
  void* stream() const override { return stream_.get(); }

 private:
  static void Move(std::byte* to, const std::byte* from, size_t bytes) {
    std::copy_n(from, bytes, to);
  }

  const ArenaMath* const inner_;
  const SharedStream stream_;
};

class WalledBackend : public Backend {
 public:
  // The inner backend's kernels run on the host.
  explicit WalledBackend(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)), math_(inner_->arena_math(), stream_) {}

  std::string_view name() const override { return "walled"; }
  int threads() const override { return inner_->threads(); }
  void SetPrecision(Precision precision) override {
    inner_->SetPrecision(precision);
    activation_dtype_ = inner_->activation_dtype();
  }
  bool on_host() const override { return false; }
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
    Upload(device, host, bytes);
    stream_->Drain();
  }
  void Upload(std::byte* device, const std::byte* host, size_t bytes) const override {
    stream_->Add([=] { std::copy_n(host, bytes, device); });
  }
  void WaitForUploads() const override { stream_->Drain(); }
  void BeginRun(const RunContext& context) const override {
    stream_->Add([this, context] { inner_->BeginRun(context); });
  }
  void Synchronize() const override { stream_->Drain(); }
  const ArenaMath* arena_math() const override { return &math_; }

  std::optional<size_t> free_bytes;

 private:
  const std::unique_ptr<Backend> inner_;
  const SharedStream stream_ = std::make_shared<WalledStream>();
  const WalledMath math_;
};

}  // namespace carole::testing
