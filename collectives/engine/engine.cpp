// The engine runs one operation after the other, and checks each before its data moves.
//
// The goal. A rank that calls another operation than the others, or the same one on other data,
// must never give a wrong sum silently. A rank that is gone or frozen must never make the others
// wait forever. MPI and NCCL alone promise neither. And backward must not wait for communication.
//
// Threads. AllReduceAsync() puts a job into a queue (JobQueue), which runs jobs in the order of the
// calls: on its own thread, or on the caller's thread if the caller would only wait. So operations
// run one at a time, and everything below sees one thread at a time.
//
// Execute() runs each operation in these phases:
//   1. Number. The header gets the next sequence number. For "auto", it gets the algorithm that was
//      chosen for this size, or kAuto if it is to be measured (AutoChoice).
//   2. Compare. All ranks compare their 80-byte headers (HeaderExchange). When this returns, all
//      ranks have arrived. If headers differ, all ranks throw the same CommError.
//   3. Move. The data is reduced, gathered or copied by algorithms/.
//   4. Record. Statistics and the observer get the times of the phases.
// From 2 on the watchdog's clock runs. If anything throws, the rank remembers the error, tells the
// ranks of its host (NodeGroup::Leave), and refuses all later operations.
//
//   Example: 2 hosts with 2 ranks each; bucket 3 of step 7 has 1,000,000 floats.
//     Ranks 0 and 1 compare headers in shared memory, and so do ranks 2 and 3. Ranks 0 and 2 send
//     each other their host's header range and publish the result to ranks 1 and 3. All match:
//     "all_reduce of 1000000 fp32, tag gradients, step 7, bucket 3". Then "hierarchical" runs
//     (algorithms/shared_memory.cpp). If rank 3 had called step 8, all four ranks would throw an
//     error that names ranks 0 and 3 and both steps.
//
// The comparison costs little: 0.4 ms of a step (0.01 %) of resnet_v1_50 at batch 16 between two
// hosts, and less on one (`carole bench train`, agreement_ms).
//
// Inline sums. On one host the data of small all-reduces travels with the header. Then every rank
// adds the data of all ranks by itself, and phase 3 needs no further barrier (IsInlined).
//
// Devices. If a DeviceAllReduce holds the data, phase 3 only enqueues the sum on the device's
// stream. The calling thread marks the point of the stream where the data is final (Mark), and
// Wait() orders later work of the stream after the sum (Join). Operations during a graph capture
// are enqueued before AllReduceAsync() returns, because only one thread at a time may add to a
// capture.
//
// Deadlines inside of libraries. The host may wait for a device forever, so threads that wait ask
// the device about once a second, and end the process after the deadline (CheckDeviceProblems).
// Nothing can interrupt MPI's own all-reduce, or a call of CUDA that does not return. That question
// to the device is such a call, too. So a thread that calls neither watches them (CallDeadline).
//
// Shutdown. MPI must be finalized by all ranks together. So the destructor compares one more header
// (Operation::kShutdown). If that fails, or an error has occurred, it leaves MPI as it is.
#include "collectives/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "collectives/engine/arena_registry.h"
#include "collectives/engine/auto_choice.h"
#include "collectives/engine/call_deadline.h"
#include "collectives/engine/consistency_check.h"
#include "collectives/engine/header_exchange.h"
#include "collectives/engine/job_queue.h"
#include "collectives/transport/stall_inspector.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/hints.h"
#include "src/core/log.h"
#include "src/core/profiler/profiler.h"
#include "src/tensor/buffer.h"

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;

struct CompletedPending final : Pending {
  void Wait() override {}
  bool Done() const override { return true; }
};

// Wait() blocks the host until the sum is enqueued, and then makes the stream wait for the sum.
struct DevicePending final : Pending {
  DevicePending(std::unique_ptr<Pending> start, DeviceAllReduce* device,
                DeviceAllReduce::Ticket ticket)
      : start_(std::move(start)), device_(device), ticket_(ticket) {}
  void Wait() override {
    start_->Wait();
    device_->Join(ticket_);
  }
  bool Done() const override { return start_->Done(); }
  std::unique_ptr<Pending> start_;
  DeviceAllReduce* device_;
  DeviceAllReduce::Ticket ticket_;
};

constexpr DType TypeOf(float) { return DType::kF32; }
constexpr DType TypeOf(double) { return DType::kF64; }

// Returns the type in which the elements of a reduction travel between hosts.
DType TypeOnWire(const OperationHeader& header) {
  return header.dtype == DType::kF32 ? header.wire : header.dtype;
}

class Engine final : public FullCommunicator {
 public:
  Engine(std::unique_ptr<CommBackend> backend, const CommunicatorOptions& options);
  ~Engine() override;

  int rank() const override { return context_.topology.rank; }
  int size() const override { return context_.topology.size(); }
  int local_rank() const override { return context_.topology.machine_rank; }
  int local_size() const override { return context_.topology.machine_size; }
  int num_hosts() const override { return static_cast<int>(context_.topology.hosts.size()); }

  const std::string& NameOf(int rank) const override { return watchdog_.names()[rank]; }

  std::unique_ptr<CommArena> AllocateArena(size_t bytes) override;
  std::unique_ptr<Pending> AllReduceAsync(std::span<float> data, const Tag& tag) override {
    return StartAllReduce(data, tag);
  }
  std::unique_ptr<Pending> AllReduceAsync(std::span<double> data, const Tag& tag) override {
    return StartAllReduce(data, tag);
  }
  void AllReduce(std::span<float> data, const Tag& tag) override { RunAllReduce(data, tag); }
  void AllReduce(std::span<double> data, const Tag& tag) override { RunAllReduce(data, tag); }
  void ReduceScatter(std::span<float> in, std::span<float> out, const Tag& tag) override {
    RunReduceScatter(in, out, tag);
  }
  void ReduceScatter(std::span<double> in, std::span<double> out, const Tag& tag) override {
    RunReduceScatter(in, out, tag);
  }
  void Broadcast(std::span<std::byte> data, int root, const Tag& tag) override;
  void AllGather(std::span<const std::byte> in, std::span<std::byte> out, const Tag& tag) override;
  void Shift(std::span<const std::byte> out, std::span<std::byte> in, const Tag& tag) override;
  void Barrier(const Tag& tag) override {
    Run(MakeHeader(Operation::kBarrier, DType::kU8, 0, tag), [](const OperationHeader&) {});
  }
  void SetAllReduce(AllReduceAlgorithm algorithm) override;
  AllReduceAlgorithm all_reduce() const override { return algorithm_; }
  AllReduceAlgorithm all_reduce_for(size_t bytes) const override {
    return algorithm_ == AllReduceAlgorithm::kAuto ? auto_choice_.Find(wire_, bytes) : algorithm_;
  }
  void SetWireDtype(DType dtype) override { wire_ = dtype; }
  bool SupportsBf16Wire() const override {
    return algorithm_ == AllReduceAlgorithm::kAuto || RowOf(algorithm_).supports_bf16_wire;
  }
  void SetPhase(RankPhase phase, int64_t step) override {
    context_.node->SetActivity({.step = step, .phase = phase});
  }
  void SetDeviceAllReduce(std::unique_ptr<DeviceAllReduce> device) override;
  std::unique_ptr<CommArena> AllocateDeviceArena(size_t bytes) override {
    CAROLE_CHECK(device_ != nullptr, "an arena of {} bytes without a device", bytes);
    const CallDeadline::Call call = EnterDevice();
    return device_->AllocateArena(bytes);
  }
  void ObserveDeviceSums(std::function<void(const DeviceSumEdge&)> observer) override;
  void Replay(const std::function<void()>& launch, const Tag& tag) override {
    const auto start = Clock::now();
    Barrier(tag);
    AddWait(Clock::now() - start);
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
  // Moves the data of an operation, after the headers have matched. Gets the header that all ranks
  // have.
  using Work = std::function<void(const OperationHeader&)>;
  using Bytes = std::span<const std::byte>;

  // Returns the type in which values of type T travel.
  template <typename T>
  DType WireOf(const Tag& tag) const {
    return std::is_same_v<T, float> && tag.may_round ? wire_ : DType::kF32;
  }
  template <typename T>
  OperationHeader MakeReductionHeader(Operation operation, std::span<T> data, const Tag& tag) const;
  template <typename T>
  std::unique_ptr<Pending> StartAllReduce(std::span<T> data, const Tag& tag);
  template <typename T>
  std::unique_ptr<Pending> StartDeviceAllReduce(std::span<T> data, const Tag& tag);
  template <typename T>
  void RunAllReduce(std::span<T> data, const Tag& tag);
  template <typename T>
  void ExecuteAllReduce(std::span<T> data, const OperationHeader& header);
  template <typename T>
  void RunReduceScatter(std::span<T> in, std::span<T> out, const Tag& tag);

  void Run(const OperationHeader& header, const Work& work, Bytes data = {}) {
    if (size() > 1) queue_->Run([&] { Execute(header, work, data); });
  }
  // Runs one operation on the current thread, in the phases that are listed above. `data` is the
  // range of an all-reduce, which may travel inline with the header.
  void Execute(OperationHeader header, const Work& work, Bytes data = {});
  bool IsInlined(const OperationHeader& header) const {
    return header.algorithm == AllReduceAlgorithm::kSharedMemory &&
           FitsInline(context_.topology, header.count * SizeOf(header.dtype));
  }
  void Observe(const OperationHeader& header, Clock::time_point start,
               Clock::time_point all_arrived);
  void AddWait(std::chrono::duration<double> time, double link_seconds = 0);
  void CheckDeviceProblems() const;
  CallDeadline::Call EnterDevice() const;
  [[noreturn]] void ExitProcess() const;
  bool IsOnDevice(const void* data) const { return device_ != nullptr && device_->Holds(data); }

  std::unique_ptr<CommBackend> backend_;
  const double deadline_seconds_;
  DType wire_;  // type of fp32 between hosts, and between devices, if Tag::may_round
  CollectiveContext context_;
  std::unique_ptr<StallInspector> stall_inspector_;
  Watchdog watchdog_;
  HeaderExchange header_exchange_;
  AutoChoice auto_choice_;
  std::function<void(const CollectiveRecord&)> observer_;
  std::unique_ptr<DeviceAllReduce> device_;
  ArenaRegistry arenas_;
  AllReduceAlgorithm algorithm_{};

  // Used only by the thread that executes operations.
  std::string first_failure_;  // error of the first operation that failed
  uint64_t next_sequence_ = 0;
  DeviceSumEdge device_sum_;  // the sum that is being enqueued

  std::mutex stats_mutex_;
  WaitStats stats_;

  // Null if there is one rank.
  std::unique_ptr<CallDeadline> calls_;  // calls that may never return
  std::unique_ptr<JobQueue> queue_;
};

CollectiveContext MakeContext(CommBackend& backend, const CommunicatorOptions& options) {
  CollectiveContext context;
  context.topology = backend.topology();
  context.transport = &backend.transport();
  context.node = &backend.node();
  context.segment_bytes = options.segment_bytes;
  return context;
}

Engine::Engine(std::unique_ptr<CommBackend> backend, const CommunicatorOptions& options)
    : backend_(std::move(backend)),
      deadline_seconds_(options.deadline_seconds),
      wire_(options.wire_dtype.value_or(DType::kF32)),
      context_(MakeContext(*backend_, options)),
      stall_inspector_(std::make_unique<StallInspector>(*context_.transport, rank(), size(),
                                                        options.warn_seconds)),
      watchdog_(options, backend_->names(),
                {.rank = context_.topology.rank,
                 .departure_reason =
                     [this](int rank) {
                       if (!context_.node->aborted()) return context_.node->DepartureReason(rank);
                       throw CommError("[comm] " + watchdog_.DescribeOperation() +
                                       ": the job was aborted");
                     },
                 .describe_activity =
                     [this](int rank) { return header_exchange_.DescribeActivity(rank); },
                 .on_waiting_for = [this](int rank) { header_exchange_.SetWaitingFor(rank); },
                 .stall_inspector = stall_inspector_.get()}),
      header_exchange_(context_),
      auto_choice_(context_, options.choices_path) {
  context_.watchdog = &watchdog_;
  SetAllReduce(options.all_reduce);
  if (size() == 1) return;
  if (wire_ != DType::kF32 && !SupportsBf16Wire() && rank() == 0)
    LogWarning("comm", "{}: has no effect between CPUs: {} always sends fp32",
               Option("wire_dtype", Name(wire_)), Name(algorithm_));
  constexpr double kGraceSeconds = 5;  // errors of other deadlines say more, so they come first
  const double seconds = deadline_seconds_ + kGraceSeconds;
  calls_ = std::make_unique<CallDeadline>(
      seconds, [this, seconds](const std::string& name, const std::string& hint) {
        LogError("comm", "{} is not complete after {:.0f} s; {}", name, seconds, hint);
        ExitProcess();
      });
  queue_ = std::make_unique<JobQueue>([this] { CheckDeviceProblems(); });
}

Engine::~Engine() {
  if (size() == 1) {
    backend_->Shutdown(true);
    return;
  }
  queue_->Stop();
  bool collective = false;
  if (backend_->NeedsCollectiveShutdown() && first_failure_.empty() &&
      std::uncaught_exceptions() == 0) {
    try {
      const OperationHeader header{.sequence = next_sequence_, .operation = Operation::kShutdown};
      watchdog_.Begin(header);
      CheckHeadersMatch(header_exchange_.CompareHeaders(header), watchdog_.names());
      collective = true;
    } catch (const std::exception& error) {
      LogError("comm", "{}", error.what());
    }
  }
  if (device_ != nullptr) {
    const CallDeadline::Call call = EnterDevice();
    device_.reset();
  }
  stall_inspector_.reset();  // cancels its messages before MPI ends
  backend_->node().Leave();
  backend_->Shutdown(collective);
}

void Engine::Execute(OperationHeader header, const Work& work, Bytes data) {
  try {
    if (!first_failure_.empty())
      throw CommError("[comm] an earlier operation failed: " + first_failure_);
    header.sequence = next_sequence_++;
    if (header.operation == Operation::kAllReduce &&
        header.algorithm == AllReduceAlgorithm::kAuto) {
      header.algorithm = auto_choice_.Find(TypeOnWire(header), header.count * SizeOf(header.dtype));
    }
    const auto start = Clock::now();
    watchdog_.Begin(header);
    const bool is_inlined = !data.empty() && IsInlined(header);
    CheckHeadersMatch(header_exchange_.CompareHeaders(header, is_inlined ? data : Bytes()),
                      watchdog_.names());
    watchdog_.SetAllArrived();
    const auto all_arrived = Clock::now();
    std::optional<profiler::Scope> range;
    if (profiler::IsActive()) range.emplace(watchdog_.DescribeOperation());
    work(header);
    range.reset();
    Observe(header, start, all_arrived);
  } catch (const std::exception& error) {
    if (first_failure_.empty()) first_failure_ = error.what();
    backend_->node().Leave(first_failure_);  // ranks that wait for this one fail at once
    throw;
  }
}

void Engine::AddWait(std::chrono::duration<double> time, double link_seconds) {
  const std::lock_guard lock(stats_mutex_);
  stats_.waited_seconds += time.count();
  stats_.link_seconds += link_seconds;
}

void Engine::Observe(const OperationHeader& header, Clock::time_point start,
                     Clock::time_point all_arrived) {
  const bool is_all_reduce = header.operation == Operation::kAllReduce;
  if (is_all_reduce && header.algorithm != AllReduceAlgorithm::kNccl)
    AddWait(all_arrived - start, std::exchange(context_.link_seconds, 0));
  if (!observer_) return;
  observer_({.operation = header.operation,
             .what = header.what,
             .algorithm = is_all_reduce ? Name(header.algorithm) : "",
             .step = header.step,
             .bucket = header.bucket,
             .bytes = header.count * SizeOf(header.dtype),
             .start = start,
             .all_arrived = all_arrived,
             .end = Clock::now()});
}

// Ends the process if the device reports a problem: the host may wait for the device forever, and
// the results of later steps could be wrong. The end of the process frees the device. NCCL's own
// abort is no way out, because it waits for captured graphs that contain its operations.
void Engine::CheckDeviceProblems() const {
  if (device_ == nullptr) return;
  const CallDeadline::Call call = EnterDevice();
  const std::string problem = device_->FindProblem(deadline_seconds_);
  if (problem.empty()) return;
  LogError("comm", "all_reduce by nccl: {}", problem);
  ExitProcess();
}

// Begins a call that may wait for the driver's lock.
CallDeadline::Call Engine::EnterDevice() const {
  return {*calls_, "all_reduce by nccl: deadline: a call of CUDA or NCCL",
          "the driver of a GPU does not answer: see dmesg and nvidia-smi, and restart the host if "
          "they show a fault"};
}

// Aborts the whole job, so that the launcher gets this exit code before it kills the ranks that
// hang.
void Engine::ExitProcess() const {
  constexpr int kCode = static_cast<int>(ExitCode::kUnavailable);
  PrintExit(kCode, Describe(ExitCode::kUnavailable));
  if (backend_->NeedsCollectiveShutdown()) backend_->Abort(kCode);
  std::_Exit(kCode);
}

template <typename T>
OperationHeader Engine::MakeReductionHeader(Operation operation, std::span<T> data,
                                            const Tag& tag) const {
  OperationHeader header = MakeHeader(operation, TypeOf(T{}), data.size(), tag);
  if (operation == Operation::kAllReduce) {
    header.algorithm = algorithm_;
    header.wire = WireOf<T>(tag);
  }
  header.arena_address = arenas_.AddressOf(std::as_bytes(data));
  return header;
}

template <typename T>
std::unique_ptr<Pending> Engine::StartAllReduce(std::span<T> data, const Tag& tag) {
  if (size() == 1) return std::make_unique<CompletedPending>();
  if (IsOnDevice(data.data())) return StartDeviceAllReduce(data, tag);
  const OperationHeader header = MakeReductionHeader(Operation::kAllReduce, data, tag);
  return queue_->Start([this, header, data] {
    Execute(
        header, [this, data](const OperationHeader& matched) { ExecuteAllReduce(data, matched); },
        std::as_bytes(data));
  });
}

// Waits until no job runs, because waiting threads use device_ (CheckDeviceProblems).
void Engine::SetDeviceAllReduce(std::unique_ptr<DeviceAllReduce> device) {
  if (size() == 1) return;
  const bool is_set = queue_->RunWhenIdle(deadline_seconds_, [&] { device_ = std::move(device); });
  CAROLE_CHECK(is_set, "operations are in flight");
}

void Engine::ObserveDeviceSums(std::function<void(const DeviceSumEdge&)> observer) {
  if (device_ == nullptr) return;
  if (!observer) return device_->SetObserver({});
  device_->SetObserver([this, observer = std::move(observer)](void* stream, bool is_end) {
    device_sum_.stream = stream;
    device_sum_.is_end = is_end;
    observer(device_sum_);
  });
}

template <typename T>
std::unique_ptr<Pending> Engine::StartDeviceAllReduce(std::span<T> data, const Tag& tag) {
  OperationHeader header = MakeHeader(Operation::kAllReduce, TypeOf(T{}), data.size(), tag);
  header.algorithm = AllReduceAlgorithm::kNccl;
  header.wire = WireOf<T>(tag);
  const DeviceAllReduce::Ticket ticket = device_->Mark(tag.is_urgent);
  auto start = queue_->Start([this, header, data, ticket] {
    Execute(header, [this, data, ticket](const OperationHeader& matched) {
      const CallDeadline::Call call = EnterDevice();
      device_sum_ = {.what = matched.what, .bucket = matched.bucket, .bytes = data.size_bytes()};
      if constexpr (std::is_same_v<T, float>) {
        device_->Enqueue(ticket, data, matched.wire);
      } else {
        device_->Enqueue(ticket, data);
      }
    });
  });
  if (device_->IsCaptured(ticket)) start->Wait();  // one thread at a time may add to a capture
  return std::make_unique<DevicePending>(std::move(start), device_.get(), ticket);
}

template <typename T>
void Engine::RunAllReduce(std::span<T> data, const Tag& tag) {
  if (size() == 1) return;
  if (IsOnDevice(data.data())) return StartDeviceAllReduce(data, tag)->Wait();
  Run(
      MakeReductionHeader(Operation::kAllReduce, data, tag),
      [this, data](const OperationHeader& matched) { ExecuteAllReduce(data, matched); },
      std::as_bytes(data));
}

template <typename T>
void Engine::ExecuteAllReduce(std::span<T> data, const OperationHeader& header) {
  if (data.empty()) return;
  if (IsInlined(header)) return SumInlined(context_, data);
  context_.wire = header.wire;
  const AllReduceEntry& entry =
      RowOf(header.algorithm != AllReduceAlgorithm::kAuto
                ? header.algorithm
                : auto_choice_.Choose(context_, TypeOnWire(header), data.size_bytes()));
  if (entry.sum_f32 == nullptr) {
    // All ranks have arrived. A rank that dies or freezes now blocks the others inside of MPI.
    const CallDeadline::Call call(*calls_,
                                  watchdog_.DescribeOperation() + ": deadline: MPI's all-reduce",
                                  "a rank is gone or frozen: see the logs of the other hosts");
    backend_->NativeAllReduce(data);
    return;
  }
  arenas_.FindLocalAddresses(header.arena_address, context_.local_addresses);
  if constexpr (std::is_same_v<T, float>) {
    entry.sum_f32(context_, data);
  } else {
    entry.sum_f64(context_, data);
  }
}

template <typename T>
void Engine::RunReduceScatter(std::span<T> in, std::span<T> out, const Tag& tag) {
  CAROLE_CHECK_EQ(in.size(), out.size() * size(), "elements of reduce_scatter's input");
  if (size() == 1) {
    std::ranges::copy(in, out.begin());
    return;
  }
  Run(MakeReductionHeader(Operation::kReduceScatter, in, tag), [&](const OperationHeader& header) {
    if (out.empty()) return;
    arenas_.FindLocalAddresses(header.arena_address, context_.local_addresses);
    ReduceScatterPieces(context_, in, out);
  });
}

void Engine::Broadcast(std::span<std::byte> data, int root, const Tag& tag) {
  CAROLE_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  OperationHeader header = MakeHeader(Operation::kBroadcast, DType::kU8, data.size(), tag);
  header.root = root;
  Run(header, [&](const OperationHeader&) { BroadcastBytes(context_, data, root); });
}

void Engine::AllGather(std::span<const std::byte> in, std::span<std::byte> out, const Tag& tag) {
  CAROLE_CHECK_EQ(out.size(), in.size() * size(), "bytes of all_gather's output");
  if (size() == 1) {
    std::ranges::copy(in, out.begin());
    return;
  }
  Run(MakeHeader(Operation::kAllGather, DType::kU8, in.size(), tag),
      [&](const OperationHeader&) { AllGatherBytes(context_, in, out); });
}

void Engine::Shift(std::span<const std::byte> out, std::span<std::byte> in, const Tag& tag) {
  CAROLE_CHECK_EQ(out.size(), in.size(), "bytes of shift's output");
  if (size() == 1) {
    std::ranges::copy(out, in.begin());
    return;
  }
  Run(MakeHeader(Operation::kShift, DType::kU8, in.size(), tag),
      [&](const OperationHeader&) { ShiftBytes(context_, out, in); });
}

std::unique_ptr<CommArena> Engine::AllocateArena(size_t bytes) {
  if (size() == 1) return arenas_.Add({}, 0, bytes);
  std::vector<std::byte*> ranks;
  Run(MakeHeader(Operation::kAllocate, DType::kU8, bytes, {.what = "arena"}),
      [&](const OperationHeader&) {
        ranks = backend_->AllocateShared(AlignUp(bytes), watchdog_);
        // An arena is shared on every host or on none, because the algorithms cut ranges in the
        // same way everywhere.
        const HeaderRange allocated = header_exchange_.CompareHeaders(
            MakeHeader(Operation::kAllocate, DType::kU8, !ranks.empty(), {}));
        if (allocated.low.count != 1 || allocated.high.count != 1) ranks.clear();
      });
  if (ranks.empty() && rank() == 0) {
    LogWarning("comm",
               "arena of {} bytes: not enough shared memory on a host: all-reduces are slower; {}",
               bytes, kMoreSharedMemoryHint);
  }
  return arenas_.Add(std::move(ranks), context_.topology.local_rank, bytes);
}

void Engine::SetAllReduce(AllReduceAlgorithm algorithm) {
  RequireFits(algorithm, context_.topology);
  if (algorithm == AllReduceAlgorithm::kMpi && !backend_->HasNativeAllReduce()) {
    throw UsageError({.tag = "comm",
                      .option = "all_reduce",
                      .problem = fmt::format("{} does not fit", Name(algorithm)),
                      .got = "threads or one process",
                      .want = std::string(RowOf(algorithm).requirement)});
  }
  algorithm_ = algorithm;
}

double Engine::ClockOffset() {
  if (size() == 1) return 0;
  double offset = 0;
  Run(MakeHeader(Operation::kBarrier, DType::kU8, 0, {.what = "clocks"}),
      [&](const OperationHeader&) { offset = header_exchange_.MeasureClockOffset(); });
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
    std::_Exit(exit_code);  // a thread is stuck in MPI; mpirun ends the other ranks
  }
}

}  // namespace

std::unique_ptr<FullCommunicator> MakeEngine(std::unique_ptr<CommBackend> backend,
                                             const CommunicatorOptions& options) {
  return std::make_unique<Engine>(std::move(backend), options);
}

}  // namespace carole::collectives
