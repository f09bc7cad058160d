#include "collectives/engine.h"

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "src/core/check.h"
#include "src/core/log.h"

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// One call of a collective.
struct Job {
  Header header;
  std::function<void()> run;  // moves the data, after the contract was checked
  std::exception_ptr error;
  bool done = false;
};

// A part of an arena's memory that all local ranks see.
struct SharedArena {
  std::vector<std::byte*> ranks;
  size_t bytes = 0;
};

struct SharedView final : Arena {
  SharedView(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  std::byte* data_;
  size_t size_;
};

struct PrivateArena final : Arena {
  explicit PrivateArena(size_t bytes) : buffer(bytes) {}
  std::byte* data() const override { return buffer.data(); }
  size_t size() const override { return buffer.size(); }
  Buffer buffer;
};

struct Nothing final : Pending {
  void Wait() override {}
  bool Done() const override { return true; }
};

constexpr DType TypeOf(float) { return DType::kF32; }
constexpr DType TypeOf(double) { return DType::kF64; }

// Jobs run one after the other in the order of the calls: on the engine's thread, or, when nothing
// else is under way, on the thread of a call that would only wait for it. So the backend sees one
// thread at a time.
class Engine final : public Communicator {
 public:
  Engine(std::unique_ptr<Backend> backend, const CommunicatorOptions& options)
      : backend_(std::move(backend)),
        deadline_seconds_(options.deadline_seconds),
        watch_(options, backend_->names(), [this](int rank) { return WhyGone(rank); }) {
    exchange_.topology = backend_->topology();
    exchange_.transport = &backend_->transport();
    exchange_.node = &backend_->node();
    exchange_.watch = &watch_;
    exchange_.segment_bytes = options.segment_bytes;
    SetAllReduce(options.all_reduce);
    if (size() > 1) thread_ = std::thread([this] { RunJobs(); });
  }
  ~Engine() override;

  int rank() const override { return exchange_.topology.rank; }
  int size() const override { return exchange_.topology.size(); }
  int local_rank() const override { return exchange_.topology.local_rank; }
  int local_size() const override { return exchange_.topology.local_size(); }

  std::unique_ptr<Arena> AllocateArena(size_t bytes) override;
  std::unique_ptr<Pending> AllReduceAsync(std::span<float> data, const Tag& tag) override {
    return Start(AllReduceJob(data, tag));
  }
  std::unique_ptr<Pending> AllReduceAsync(std::span<double> data, const Tag& tag) override {
    return Start(AllReduceJob(data, tag));
  }
  void AllReduce(std::span<float> data, const Tag& tag) override { Run(AllReduceJob(data, tag)); }
  void AllReduce(std::span<double> data, const Tag& tag) override { Run(AllReduceJob(data, tag)); }
  void Broadcast(std::span<std::byte> data, int root, const Tag& tag) override;
  void AllGather(std::span<const std::byte> in, std::span<std::byte> out, const Tag& tag) override;
  void Barrier(const Tag& tag) override {
    Run(MakeJob(MakeHeader(Operation::kBarrier, DType::kU8, 0, tag), [] {}));
  }
  void SetAllReduce(std::string_view name) override;
  std::string_view all_reduce() const override { return kAllReduce[algorithm_].name; }
  void Abort(int exit_code, const std::string& why) override;

 private:
  struct JobPending;

  static std::shared_ptr<Job> MakeJob(const Header& header, std::function<void()> run) {
    return std::make_shared<Job>(Job{.header = header, .run = std::move(run)});
  }
  template <typename T>
  std::shared_ptr<Job> AllReduceJob(std::span<T> data, const Tag& tag);
  template <typename T>
  void AllReduceNow(std::span<T> data, size_t algorithm, uint64_t place);

  std::unique_ptr<Pending> Start(std::shared_ptr<Job> job);
  void Run(std::shared_ptr<Job> job);
  void RunJobs();
  void Execute(Job& job);
  void Await(Job& job);
  void CheckNative() const;

  Verdict Compare(const Header& header);
  std::string WhyGone(int rank) const;
  uint64_t PlaceOf(std::span<const std::byte> data) const;

  std::unique_ptr<Backend> backend_;
  const double deadline_seconds_;
  Watch watch_;
  Exchange exchange_;
  std::vector<SharedArena> arenas_;
  size_t algorithm_ = 0;
  std::string failure_;  // of the first operation that failed; touched by the executing thread only
  std::atomic<int64_t> native_since_{0};  // when the backend's own all-reduce began, or 0

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> queue_;
  uint64_t next_sequence_ = 0;
  bool executing_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// Shared with the queue: the caller may drop it before the job has run.
struct Engine::JobPending final : Pending {
  JobPending(Engine* engine, std::shared_ptr<Job> job) : engine_(engine), job_(std::move(job)) {}
  void Wait() override { engine_->Await(*job_); }
  bool Done() const override {
    const std::lock_guard lock(engine_->mutex_);
    return job_->done;
  }
  Engine* engine_;
  std::shared_ptr<Job> job_;
};

Engine::~Engine() {
  if (size() == 1) {
    backend_->End(true);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  bool together = false;
  if (backend_->NeedsFarewell() && failure_.empty() && std::uncaught_exceptions() == 0) {
    try {
      const Header leave{.sequence = next_sequence_, .operation = Operation::kLeave};
      watch_.Begin(leave);
      RequireAgreement(Compare(leave), watch_.names());
      together = true;
    } catch (const std::exception& error) {
      LogError("comm", "{}", error.what());
    }
  }
  backend_->node().Leave();
  backend_->End(together);
}

std::unique_ptr<Pending> Engine::Start(std::shared_ptr<Job> job) {
  if (size() == 1) return std::make_unique<Nothing>();
  {
    const std::lock_guard lock(mutex_);
    job->header.sequence = next_sequence_++;
    queue_.push_back(job);
  }
  changed_.notify_all();
  return std::make_unique<JobPending>(this, std::move(job));
}

void Engine::Run(std::shared_ptr<Job> job) {
  if (size() == 1) return;
  Lock lock(mutex_);
  if (executing_ || !queue_.empty()) {
    lock.unlock();
    return Start(std::move(job))->Wait();
  }
  executing_ = true;
  job->header.sequence = next_sequence_++;
  lock.unlock();
  Execute(*job);
  lock.lock();
  executing_ = false;
  if (!queue_.empty()) changed_.notify_all();
  if (job->error) std::rethrow_exception(job->error);
}

void Engine::RunJobs() {
  Lock lock(mutex_);
  for (;;) {
    const auto may_go = [&] { return !executing_ && (stop_ || !queue_.empty()); };
    while (!changed_.wait_for(lock, std::chrono::seconds(1), may_go)) CheckNative();
    if (queue_.empty()) return;
    const std::shared_ptr<Job> job = queue_.front();
    queue_.pop_front();
    executing_ = true;
    lock.unlock();
    Execute(*job);
    lock.lock();
    executing_ = false;
    job->done = true;
    changed_.notify_all();
  }
}

void Engine::Execute(Job& job) {
  try {
    if (!failure_.empty()) throw CommError("[comm] an earlier operation failed: " + failure_);
    watch_.Begin(job.header);
    RequireAgreement(Compare(job.header), watch_.names());
    job.run();
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = error.what();
    job.error = std::current_exception();
    backend_->node().Leave(failure_);  // whoever waits for this rank learns at once
  }
}

void Engine::Await(Job& job) {
  Lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::seconds(1), [&] { return job.done; })) CheckNative();
  if (job.error) std::rethrow_exception(job.error);
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
  LogError("comm", "all_reduce by mpi: deadline: not through after {:.0f} s; a rank is gone",
           waited);
  std::_Exit(static_cast<int>(ExitCode::kUnavailable));
}

// Ranks of a host compare in shared memory; then the first ranks of the hosts tell each other.
Verdict Engine::Compare(const Header& header) {
  const Topology& t = exchange_.topology;
  NodeGroup& node = *exchange_.node;
  Verdict verdict = node.Compare(header, watch_);
  if (t.hosts.size() == 1) return verdict;
  if (t.local_rank != 0) return node.AwaitAnnouncement(watch_);
  const Verdict mine = verdict;
  std::vector<Verdict> others(t.hosts.size());
  std::vector<Message> messages;
  for (size_t h = 0; h < t.hosts.size(); ++h) {
    if (static_cast<int>(h) == t.host()) continue;
    const int peer = t.hosts[h].front();
    messages.push_back(Receive(*exchange_.transport, peer, Channel::kContract,
                               std::as_writable_bytes(std::span(&others[h], 1))));
    messages.push_back(
        Send(*exchange_.transport, peer, Channel::kContract, std::as_bytes(std::span(&mine, 1))));
  }
  for (Message& message : messages) {
    node.SetWaitingFor(message.peer());
    message.Wait(watch_);
  }
  node.SetWaitingFor(-1);
  for (size_t h = 0; h < t.hosts.size(); ++h) {
    if (static_cast<int>(h) != t.host()) Merge(others[h], &verdict);
  }
  if (t.local_size() > 1) node.Announce(verdict);
  return verdict;
}

std::string Engine::WhyGone(int rank) const {
  if (exchange_.node->aborted())
    throw CommError("[comm] " + watch_.Doing() + ": the job was aborted");
  return exchange_.node->WhyGone(rank);
}

uint64_t Engine::PlaceOf(std::span<const std::byte> data) const {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (arenas_[i].ranks.empty()) continue;
    const std::byte* base = arenas_[i].ranks[local_rank()];
    const std::less_equal<const std::byte*> not_after;
    if (!not_after(base, data.data())) continue;
    if (!not_after(data.data() + data.size(), base + arenas_[i].bytes)) continue;
    return static_cast<uint64_t>(i) << 48 | static_cast<uint64_t>(data.data() - base);
  }
  return Header::kOutside;
}

template <typename T>
std::shared_ptr<Job> Engine::AllReduceJob(std::span<T> data, const Tag& tag) {
  if (size() == 1) return nullptr;
  Header header = MakeHeader(Operation::kAllReduce, TypeOf(T{}), data.size(), tag);
  header.algorithm = static_cast<uint8_t>(algorithm_);
  header.place = PlaceOf(std::as_bytes(data));
  return MakeJob(header, [this, data, algorithm = algorithm_, place = header.place] {
    AllReduceNow(data, algorithm, place);
  });
}

template <typename T>
void Engine::AllReduceNow(std::span<T> data, size_t algorithm, uint64_t place) {
  if (data.empty()) return;
  const AllReduceEntry& entry = kAllReduce[algorithm];
  if (entry.sum_f32 == nullptr) {
    native_since_ = Clock::now().time_since_epoch().count();
    backend_->NativeAllReduce(data);
    native_since_ = 0;
    return;
  }
  exchange_.peers.clear();
  if (place != Header::kOutside) {
    const size_t offset = place & ((uint64_t{1} << 48) - 1);
    for (std::byte* base : arenas_[place >> 48].ranks) exchange_.peers.push_back(base + offset);
  }
  if constexpr (std::is_same_v<T, float>) {
    entry.sum_f32(exchange_, data);
  } else {
    entry.sum_f64(exchange_, data);
  }
}

void Engine::Broadcast(std::span<std::byte> data, int root, const Tag& tag) {
  CAROLE_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  Header header = MakeHeader(Operation::kBroadcast, DType::kU8, data.size(), tag);
  header.root = root;
  Run(MakeJob(header, [this, data, root] { ChainBroadcast(exchange_, data, root); }));
}

void Engine::AllGather(std::span<const std::byte> in, std::span<std::byte> out, const Tag& tag) {
  CAROLE_CHECK_EQ(out.size(), in.size() * size(), "bytes of all_gather's output");
  if (size() == 1) {
    std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  Run(MakeJob(MakeHeader(Operation::kAllGather, DType::kU8, in.size(), tag),
              [this, in, out] { RingAllGather(exchange_, in, out); }));
}

std::unique_ptr<Arena> Engine::AllocateArena(size_t bytes) {
  if (size() == 1) return std::make_unique<PrivateArena>(bytes);
  const Header header = MakeHeader(Operation::kAllocate, DType::kU8, bytes, {.what = "arena"});
  std::vector<std::byte*> ranks;
  Run(MakeJob(header, [&] {
    ranks = backend_->AllocateShared(AlignUp(bytes), watch_);
    // Shared on every host or on none: the algorithms cut ranges in the same way everywhere.
    const Verdict made = Compare(MakeHeader(Operation::kAllocate, DType::kU8, !ranks.empty(), {}));
    if (made.low.count != 1 || made.high.count != 1) ranks.clear();
  }));
  arenas_.push_back({.ranks = ranks, .bytes = bytes});
  if (!ranks.empty()) return std::make_unique<SharedView>(ranks[local_rank()], bytes);
  if (rank() == 0) {
    LogWarning("comm", "arena of {} bytes: not enough shared memory on a host; sums are slower",
               bytes);
  }
  return std::make_unique<PrivateArena>(bytes);
}

void Engine::SetAllReduce(std::string_view name) {
  const size_t row = FindAllReduce(name, exchange_.topology);
  if (kAllReduce[row].sum_f32 == nullptr && !backend_->HasNativeAllReduce()) {
    throw UsageError(
        fmt::format("[comm] all_reduce: {} does not fit: got threads or one process, want {}", name,
                    kAllReduce[row].fits_where));
  }
  algorithm_ = row;
}

void Engine::Abort(int exit_code, const std::string& why) {
  LogError("comm", "{} ends the job with exit code {}: {}", watch_.names()[rank()], exit_code, why);
  backend_->StopWaiting();
  Lock lock(mutex_);
  const bool is_free =
      changed_.wait_for(lock, std::chrono::seconds(1), [&] { return !executing_; });
  if (is_free) return backend_->Abort(exit_code);
  if (backend_->NeedsFarewell())
    std::_Exit(exit_code);  // stuck in a library: mpirun ends the others
}

}  // namespace

std::unique_ptr<Communicator> MakeEngine(std::unique_ptr<Backend> backend,
                                         const CommunicatorOptions& options) {
  return std::make_unique<Engine>(std::move(backend), options);
}

}  // namespace carole::collectives
