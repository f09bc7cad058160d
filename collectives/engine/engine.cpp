#include "collectives/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "collectives/engine/arenas.h"
#include "collectives/engine/auto_choice.h"
#include "collectives/engine/consistency_check.h"
#include "collectives/engine/header_exchange.h"
#include "collectives/engine/job_queue.h"
#include "collectives/transport/stall_inspector.h"
#include "src/core/advice.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;

struct Nothing final : Pending {
  void Wait() override {}
  bool Done() const override { return true; }
};

// Waits on the host until the sum is in the stream, and in the stream for the sum.
struct DevicePending final : Pending {
  DevicePending(std::unique_ptr<Pending> start, DeviceSums* sums, DeviceSums::Ticket ticket)
      : start_(std::move(start)), sums_(sums), ticket_(ticket) {}
  void Wait() override {
    start_->Wait();
    sums_->Join(ticket_);
  }
  bool Done() const override { return start_->Done(); }
  std::unique_ptr<Pending> start_;
  DeviceSums* sums_;
  DeviceSums::Ticket ticket_;
};

constexpr DType TypeOf(float) { return DType::kF32; }
constexpr DType TypeOf(double) { return DType::kF64; }

DType WireType(const std::string& name) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    if (Name(dtype) == name) return dtype;
  }
  throw UsageError(fmt::format("[comm] wire_dtype: got {}, want fp32 or bf16", name));
}

// What a sum's elements are between hosts.
DType Travels(const Header& header) {
  return header.dtype == DType::kF32 ? header.wire : header.dtype;
}

class Engine final : public Communicator {
 public:
  Engine(std::unique_ptr<CommBackend> backend, const CommunicatorOptions& options);
  ~Engine() override;

  int rank() const override { return exchange_.topology.rank; }
  int size() const override { return exchange_.topology.size(); }
  int local_rank() const override { return exchange_.topology.machine_rank; }
  int local_size() const override { return exchange_.topology.machine_size; }
  int num_hosts() const override { return static_cast<int>(exchange_.topology.hosts.size()); }

  const std::string& NameOf(int rank) const override { return watch_.names()[rank]; }

  std::unique_ptr<Arena> AllocateArena(size_t bytes) override;
  std::unique_ptr<Pending> AllReduceAsync(std::span<float> data, const Tag& tag) override {
    return StartSum(data, tag);
  }
  std::unique_ptr<Pending> AllReduceAsync(std::span<double> data, const Tag& tag) override {
    return StartSum(data, tag);
  }
  void AllReduce(std::span<float> data, const Tag& tag) override { Sum(data, tag); }
  void AllReduce(std::span<double> data, const Tag& tag) override { Sum(data, tag); }
  void ReduceScatter(std::span<float> in, std::span<float> out, const Tag& tag) override {
    SumPieces(in, out, tag);
  }
  void ReduceScatter(std::span<double> in, std::span<double> out, const Tag& tag) override {
    SumPieces(in, out, tag);
  }
  void Broadcast(std::span<std::byte> data, int root, const Tag& tag) override;
  void AllGather(std::span<const std::byte> in, std::span<std::byte> out, const Tag& tag) override;
  void Barrier(const Tag& tag) override {
    Run(MakeHeader(Operation::kBarrier, DType::kU8, 0, tag), [](const Header&) {});
  }
  void SetAllReduce(std::string_view name) override;
  std::string_view all_reduce() const override { return RowName(algorithm_); }
  std::string_view all_reduce_of(size_t bytes) const override {
    return RowName(algorithm_ == kAutoRow ? choice_.Find(wire_, bytes) : algorithm_);
  }
  void SetPhase(RankPhase phase, int64_t step) override {
    exchange_.node->SetWhere({.step = step, .phase = phase});
  }
  void SetDeviceSums(std::unique_ptr<DeviceSums> sums) override;
  void Replay(const std::function<void()>& launch, const Tag& tag) override {
    Barrier(tag);
    launch();
    if (device_ != nullptr) device_->NoteReplay();
  }
  void SetObserver(std::function<void(const CollectiveRecord&)> observer) override {
    observer_ = std::move(observer);
  }
  double ClockOffset() override;
  WaitStats TakeWaitStats() override;
  void Abort(int exit_code) override;

 private:
  // Moves an operation's data, after the contract was checked.
  using Work = std::function<void(const Header&)>;
  using Bytes = std::span<const std::byte>;

  template <typename T>
  Header SumHeader(Operation operation, std::span<T> data, const Tag& tag) const;
  template <typename T>
  std::unique_ptr<Pending> StartSum(std::span<T> data, const Tag& tag);
  template <typename T>
  std::unique_ptr<Pending> StartDeviceSum(std::span<T> data, const Tag& tag);
  template <typename T>
  void Sum(std::span<T> data, const Tag& tag);
  template <typename T>
  void SumNow(std::span<T> data, const Header& header);
  template <typename T>
  void SumPieces(std::span<T> in, std::span<T> out, const Tag& tag);

  void Run(const Header& header, const Work& work, Bytes data = {}) {
    if (size() > 1) queue_->Run([&] { Execute(header, work, data); });
  }
  // `data`: of a sum, which may travel with the header.
  void Execute(Header header, const Work& work, Bytes data = {});
  bool IsInlined(const Header& header) const {
    return RowName(header.algorithm) == "shared_memory" &&
           FitsInline(exchange_.topology, header.count * SizeOf(header.dtype));
  }
  void Observe(const Header& header, Clock::time_point start, Clock::time_point agreed);
  void CheckNative() const;
  void CheckDevice() const;
  [[noreturn]] void Leave() const;
  bool IsOnDevice(const void* data) const { return device_ != nullptr && device_->Holds(data); }

  std::unique_ptr<CommBackend> backend_;
  const double deadline_seconds_;
  const DType wire_;  // of sums that may be rounded
  Exchange exchange_;
  std::unique_ptr<StallInspector> stall_inspector_;
  Watch watch_;
  HeaderExchange agreement_;
  AutoChoice choice_;
  std::function<void(const CollectiveRecord&)> observer_;
  std::unique_ptr<DeviceSums> device_;
  Arenas arenas_;
  size_t algorithm_ = 0;
  std::atomic<int64_t> native_since_{0};  // when the backend's own all-reduce began, or 0

  // Touched by the executing thread only.
  std::string failure_;  // of the first operation that failed
  uint64_t next_sequence_ = 0;

  std::mutex stats_mutex_;
  WaitStats stats_;

  std::unique_ptr<JobQueue> queue_;  // of several ranks
};

Exchange MakeExchange(CommBackend& backend, const CommunicatorOptions& options) {
  Exchange x;
  x.topology = backend.topology();
  x.transport = &backend.transport();
  x.node = &backend.node();
  x.segment_bytes = options.segment_bytes;
  return x;
}

Engine::Engine(std::unique_ptr<CommBackend> backend, const CommunicatorOptions& options)
    : backend_(std::move(backend)),
      deadline_seconds_(options.deadline_seconds),
      wire_(WireType(options.wire_dtype)),
      exchange_(MakeExchange(*backend_, options)),
      stall_inspector_(std::make_unique<StallInspector>(*exchange_.transport, rank(), size(),
                                                        options.warn_seconds)),
      watch_(options, backend_->names(),
             {.rank = exchange_.topology.rank,
              .why_gone =
                  [this](int rank) {
                    if (!exchange_.node->aborted()) return exchange_.node->WhyGone(rank);
                    throw CommError("[comm] " + watch_.Doing() + ": the job was aborted");
                  },
              .where = [this](int rank) { return agreement_.WhereIs(rank); },
              .waiting_for = [this](int rank) { agreement_.SetWaitingFor(rank); },
              .stall_inspector = stall_inspector_.get()}),
      agreement_(exchange_),
      choice_(exchange_, options.choices_path) {
  exchange_.watch = &watch_;
  SetAllReduce(options.all_reduce);
  if (size() == 1) return;
  if (wire_ != DType::kF32 && algorithm_ != kAutoRow && !kAllReduce[algorithm_].rounds &&
      rank() == 0)
    LogWarning("comm", "wire_dtype: {} sends fp32 all the same", all_reduce());
  queue_ = std::make_unique<JobQueue>([this] {
    CheckNative();
    CheckDevice();
  });
}

Engine::~Engine() {
  if (size() == 1) {
    backend_->End(true);
    return;
  }
  queue_->Stop();
  bool together = false;
  if (backend_->NeedsCollectiveShutdown() && failure_.empty() && std::uncaught_exceptions() == 0) {
    try {
      const Header leave{.sequence = next_sequence_, .operation = Operation::kLeave};
      watch_.Begin(leave);
      CheckHeadersMatch(agreement_.Compare(leave), watch_.names());
      together = true;
    } catch (const std::exception& error) {
      LogError("comm", "{}", error.what());
    }
  }
  device_.reset();
  stall_inspector_.reset();  // its messages end before MPI
  backend_->node().Leave();
  backend_->End(together);
}

void Engine::Execute(Header header, const Work& work, Bytes data) {
  try {
    if (!failure_.empty()) throw CommError("[comm] an earlier operation failed: " + failure_);
    header.sequence = next_sequence_++;
    if (header.algorithm == kAutoRow) {
      const size_t row = choice_.Find(Travels(header), header.count * SizeOf(header.dtype));
      header.algorithm = static_cast<uint8_t>(row);
    }
    const auto start = Clock::now();
    watch_.Begin(header);
    const bool is_inlined = !data.empty() && IsInlined(header);
    CheckHeadersMatch(agreement_.Compare(header, is_inlined ? data : Bytes()), watch_.names());
    watch_.SetAgreed();
    const auto agreed = Clock::now();
    work(header);
    Observe(header, start, agreed);
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = error.what();
    backend_->node().Leave(failure_);  // whoever waits for this rank learns at once
    throw;
  }
}

void Engine::Observe(const Header& header, Clock::time_point start, Clock::time_point agreed) {
  const bool is_sum = header.operation == Operation::kAllReduce;
  if (is_sum) {
    const std::lock_guard lock(stats_mutex_);
    stats_.waited_seconds += std::chrono::duration<double>(agreed - start).count();
    stats_.link_seconds += std::exchange(exchange_.link_seconds, 0);
  }
  if (!observer_) return;
  observer_({.operation = Name(header.operation),
             .what = header.what,
             .algorithm = is_sum ? RowName(header.algorithm) : "",
             .step = header.step,
             .bucket = header.bucket,
             .bytes = header.count * SizeOf(header.dtype),
             .start = start,
             .agreed = agreed,
             .end = Clock::now()});
}

// The contract was checked, so somebody died inside: nothing but the end of the process gets out of
// there.
void Engine::CheckNative() const {
  constexpr double kGraceSeconds = 5;
  const int64_t since = native_since_.load();
  if (since == 0) return;
  const auto now = Clock::now().time_since_epoch().count();
  const double waited = std::chrono::duration<double>(Clock::duration(now - since)).count();
  if (waited < deadline_seconds_ + kGraceSeconds) return;
  LogError("comm", "{}: deadline: not through MPI after {:.0f} s; a rank is gone or frozen",
           watch_.Doing(), waited);
  Leave();
}

// As above: the host may wait for the device without end, and no step may be believed any more. The
// end of the process frees the device; NCCL's own abort waits for recordings that hold its sums.
void Engine::CheckDevice() const {
  if (device_ == nullptr) return;
  const std::string problem = device_->Trouble(deadline_seconds_);
  if (problem.empty()) return;
  LogError("comm", "all_reduce by nccl: {}", problem);
  Leave();
}

// With the others, so that the launcher hears this code before it has to kill those that hang.
void Engine::Leave() const {
  constexpr int kCode = static_cast<int>(ExitCode::kUnavailable);
  PrintExit(kCode, Describe(ExitCode::kUnavailable));
  if (backend_->NeedsCollectiveShutdown()) backend_->Abort(kCode);
  std::_Exit(kCode);
}

template <typename T>
Header Engine::SumHeader(Operation operation, std::span<T> data, const Tag& tag) const {
  Header header = MakeHeader(operation, TypeOf(T{}), data.size(), tag);
  if (operation == Operation::kAllReduce) {
    header.algorithm = static_cast<uint8_t>(algorithm_);
    header.wire = std::is_same_v<T, float> && tag.may_round ? wire_ : DType::kF32;
  }
  header.place = arenas_.PlaceOf(std::as_bytes(data));
  return header;
}

template <typename T>
std::unique_ptr<Pending> Engine::StartSum(std::span<T> data, const Tag& tag) {
  if (size() == 1) return std::make_unique<Nothing>();
  if (IsOnDevice(data.data())) return StartDeviceSum(data, tag);
  const Header header = SumHeader(Operation::kAllReduce, data, tag);
  return queue_->Start([this, header, data] {
    Execute(
        header, [this, data](const Header& agreed) { SumNow(data, agreed); }, std::as_bytes(data));
  });
}

// Looks at it come from threads that wait (CheckDevice).
void Engine::SetDeviceSums(std::unique_ptr<DeviceSums> sums) {
  if (size() == 1) return;
  const bool is_set = queue_->RunWhenIdle(deadline_seconds_, [&] { device_ = std::move(sums); });
  CAROLE_CHECK(is_set, "operations are in flight");
}

template <typename T>
std::unique_ptr<Pending> Engine::StartDeviceSum(std::span<T> data, const Tag& tag) {
  Header header = MakeHeader(Operation::kAllReduce, TypeOf(T{}), data.size(), tag);
  header.algorithm = kDeviceRow;
  const DeviceSums::Ticket ticket = device_->Mark();
  auto start = queue_->Start([this, header, data, ticket] {
    Execute(header, [this, data, ticket](const Header&) { device_->Sum(ticket, data); });
  });
  if (device_->IsRecorded(ticket)) start->Wait();  // one thread at a time adds to a recording
  return std::make_unique<DevicePending>(std::move(start), device_.get(), ticket);
}

template <typename T>
void Engine::Sum(std::span<T> data, const Tag& tag) {
  if (size() == 1) return;
  if (IsOnDevice(data.data())) return StartDeviceSum(data, tag)->Wait();
  Run(
      SumHeader(Operation::kAllReduce, data, tag),
      [this, data](const Header& agreed) { SumNow(data, agreed); }, std::as_bytes(data));
}

template <typename T>
void Engine::SumNow(std::span<T> data, const Header& header) {
  if (data.empty()) return;
  if (IsInlined(header)) return SumInlined(exchange_, data);
  exchange_.wire = header.wire;
  const size_t row = header.algorithm != kAutoRow
                         ? header.algorithm
                         : choice_.Choose(exchange_, Travels(header), data.size_bytes());
  const AllReduceEntry& entry = kAllReduce[row];
  if (entry.sum_f32 == nullptr) {
    native_since_ = Clock::now().time_since_epoch().count();
    backend_->NativeAllReduce(data);
    native_since_ = 0;
    return;
  }
  arenas_.FindPeers(header.place, exchange_.peers);
  if constexpr (std::is_same_v<T, float>) {
    entry.sum_f32(exchange_, data);
  } else {
    entry.sum_f64(exchange_, data);
  }
}

template <typename T>
void Engine::SumPieces(std::span<T> in, std::span<T> out, const Tag& tag) {
  CAROLE_CHECK_EQ(in.size(), out.size() * size(), "elements of reduce_scatter's input");
  if (size() == 1) {
    std::ranges::copy(in, out.begin());
    return;
  }
  Run(SumHeader(Operation::kReduceScatter, in, tag), [&](const Header& header) {
    if (out.empty()) return;
    arenas_.FindPeers(header.place, exchange_.peers);
    ReduceScatterPieces(exchange_, in, out);
  });
}

void Engine::Broadcast(std::span<std::byte> data, int root, const Tag& tag) {
  CAROLE_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  Header header = MakeHeader(Operation::kBroadcast, DType::kU8, data.size(), tag);
  header.root = root;
  Run(header, [&](const Header&) { BroadcastBytes(exchange_, data, root); });
}

void Engine::AllGather(std::span<const std::byte> in, std::span<std::byte> out, const Tag& tag) {
  CAROLE_CHECK_EQ(out.size(), in.size() * size(), "bytes of all_gather's output");
  if (size() == 1) {
    std::ranges::copy(in, out.begin());
    return;
  }
  Run(MakeHeader(Operation::kAllGather, DType::kU8, in.size(), tag),
      [&](const Header&) { AllGatherBytes(exchange_, in, out); });
}

std::unique_ptr<Arena> Engine::AllocateArena(size_t bytes) {
  if (size() == 1) return arenas_.Add({}, 0, bytes);
  std::vector<std::byte*> ranks;
  Run(MakeHeader(Operation::kAllocate, DType::kU8, bytes, {.what = "arena"}), [&](const Header&) {
    ranks = backend_->AllocateShared(AlignUp(bytes), watch_);
    // Shared on every host or on none: the algorithms cut ranges in the same way everywhere.
    const HeaderRange made =
        agreement_.Compare(MakeHeader(Operation::kAllocate, DType::kU8, !ranks.empty(), {}));
    if (made.low.count != 1 || made.high.count != 1) ranks.clear();
  });
  if (ranks.empty() && rank() == 0) {
    LogWarning("comm", "arena of {} bytes: not enough shared memory on a host; sums are slower: {}",
               bytes, kMoreSharedMemory);
  }
  return arenas_.Add(std::move(ranks), exchange_.topology.local_rank, bytes);
}

void Engine::SetAllReduce(std::string_view name) {
  const size_t row = FindAllReduce(name, exchange_.topology);
  if (row != kAutoRow && kAllReduce[row].sum_f32 == nullptr && !backend_->HasNativeAllReduce()) {
    throw UsageError(
        fmt::format("[comm] --all_reduce: {} does not fit: got threads or one process, want {}",
                    name, kAllReduce[row].fits_where));
  }
  algorithm_ = row;
}

double Engine::ClockOffset() {
  if (size() == 1) return 0;
  double offset = 0;
  Run(MakeHeader(Operation::kBarrier, DType::kU8, 0, {.what = "clocks"}),
      [&](const Header&) { offset = agreement_.MeasureClockOffset(); });
  return offset;
}

WaitStats Engine::TakeWaitStats() {
  const std::lock_guard lock(stats_mutex_);
  return std::exchange(stats_, {});
}

void Engine::Abort(int exit_code) {
  backend_->StopWaiting();
  if (size() == 1) return backend_->Abort(exit_code);
  if (queue_->RunWhenIdle(1, [&] { backend_->Abort(exit_code); })) return;
  if (backend_->NeedsCollectiveShutdown()) {
    std::_Exit(exit_code);  // stuck in a library: mpirun ends the others
  }
}

}  // namespace

std::unique_ptr<Communicator> MakeEngine(std::unique_ptr<CommBackend> backend,
                                         const CommunicatorOptions& options) {
  return std::make_unique<Engine>(std::move(backend), options);
}

}  // namespace carole::collectives
