// Recording a trace of all ranks on one clock.
//
// Task. To see who waits for whom, the events of all ranks must be comparable in time. Every host
// has its own steady clock, which starts at an arbitrary moment and runs a little fast or slow.
// Recording must cost almost nothing and must not grow with the length of the run. A run that is
// killed should leave a trace, too.
//
// One clock. Each rank records events with its own clock and converts nothing while training. When
// a trace is written, ClockOffset() measures, for each rank, how many seconds to add to its clock
// to get the clock of rank 0. For that, rank 0 sends its time to one rank of each other host
// several times. The fastest round trip counts. Rank 0's time is taken to belong to the middle of
// the round trip, so the error is at most half of it. TraceJson adds the offset of a rank to all
// its events. Time 0 is the moment at which rank 0 entered OnTrainBegin().
//
//   Example. Rank 1's clock shows 500.000 s when rank 0's shows 20.000 s, so its offset is -480 s.
//     rank 0: all-reduce starts at   21.000 s                       all ranks arrived at 21.004 s
//     rank 1: all-reduce starts at  501.004 s  -> 21.004 s on rank 0's clock
//   With time 0 at 20.000 s, the file shows that rank 0 waited from 1.000 s to 1.004 s for rank 1.
//
// Clocks drift. An offset that was measured at the start of a run becomes wrong. So it is measured
// for each write, right after the steps that are written.
//
// Each rank has one TraceRing, a ring buffer of events and their interned names.
//   kStep        from OnStepBegin to OnStepEnd
//   kPhase       from one EnterPhase() to the next; the phase backward starts at its first kernel
//   kKernel      if requested; from the observer of the Executable
//   kCollective  from the observer of collectives, on the communicator's thread
//   kInput       what the reading threads spent during the step
//   kDevice      what a device did, by its own clock (src/train/timing/device_timeline.cpp)
// The ring keeps the newest events. With N ranks it holds 2^20 / N events, at least 2^12 and at
// most 2^16, as the file holds the events of all ranks.
//
// Devices. The host launches a step before the last one has ended, mostly as a CUDA graph. So its
// steps and phases show only what the host does. An observer of kernels would change that: the host
// would launch each kernel and wait for it. It is used if kernels are to be recorded.
//
// Writing. Ranks broadcast their events one after the other; rank 0 appends them to FILE.part and
// renames it in the end. So the memory is bounded by the events of one rank. All ranks call Write()
// at the same points of the run, which depend only on the number of steps and on saves. Collectives
// that write the trace carry the tag "trace" and are not recorded.
#include "src/monitoring/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"
#include "src/monitoring/trace/trace_json.h"
#include "src/train/step/phase.h"

namespace carole::monitoring {
namespace {

using collectives::RankPhase;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxEventsOfAllRanks = 1 << 20;
constexpr size_t kMinEvents = 1 << 12;
constexpr char kTraceTag[] = "trace";  // tag of the collectives that write the trace

// Returns the number of events that each rank keeps.
size_t Capacity(int num_ranks) {
  return std::clamp(kMaxEventsOfAllRanks / static_cast<size_t>(num_ranks), kMinEvents,
                    Trace::kMaxEvents);
}

// The header that a rank broadcasts before its events.
struct EventsHeader {
  uint64_t bytes = 0;
  double clock_offset = 0;
};

}  // namespace

void ParseTraceSteps(const std::string& text, TraceOptions& options) {
  const size_t colon = text.find(':');
  const bool is_range = colon != std::string::npos;
  const auto first = ParseNumber<int64_t>(text.substr(0, colon));
  const auto last = is_range ? ParseNumber<int64_t>(text.substr(colon + 1)) : first;
  if (!first || !last || *first < (is_range ? 0 : 1) || *last < *first) {
    throw UsageError({.tag = "flags",
                      .option = "trace_steps",
                      .got = text,
                      .want = "a number (the last steps) or FIRST:LAST"});
  }
  if (is_range) {
    options.first_step = *first;
    options.last_step = *last;
  } else {
    options.num_steps = *first;
  }
}

// The part that the communicator's thread uses, too.
struct Trace::Recorder {
  explicit Recorder(size_t capacity) : ring(capacity) {}

  TraceRing ring;
  std::atomic<bool> is_on = false;
  std::atomic<int64_t> step = 0;
  std::atomic<uint64_t> sequence = 0;

  void AddCollective(const collectives::CollectiveRecord& r) {
    const uint64_t number = sequence++;
    if (!is_on || r.what == kTraceTag) return;
    ring.Add({.start = r.start,
              .end = r.end,
              .step = step,
              .kind = TraceKind::kCollective,
              .name = ring.NameId(r.what),
              .detail = ring.NameId(Name(r.operation)),
              .operation = r.operation,
              .algorithm = ring.NameId(r.algorithm),
              .bucket = r.bucket,
              .sequence = number,
              .bytes = r.bytes,
              .all_arrived = r.all_arrived});
  }
};

Trace::Trace(TraceOptions options, train::TrainStep& step, collectives::Communicator& communicator,
             collectives::Diagnostics& diagnostics)
    : options_(std::move(options)),
      step_(step),
      communicator_(communicator),
      diagnostics_(diagnostics),
      recorder_(std::make_shared<Recorder>(Capacity(communicator.size()))) {}

Trace::~Trace() { train::SetPhaseObserver({}); }

void Trace::OnTrainBegin(const train::RunState& /*state*/) {
  if (communicator_.rank() == 0) RequireWritablePath();
  zero_ = Clock::now();  // before the barrier, so no rank has an event with a negative time
  communicator_.Barrier({.what = kTraceTag});
  diagnostics_.SetObserver([recorder = recorder_](const collectives::CollectiveRecord& r) {
    recorder->AddCollective(r);
  });
  const bool is_device = step_.executable().backend().is_asynchronous();
  if (is_device) step_.RecordDeviceSpans();
  if (!is_device || options_.kernels)
    step_.executable().AddObserver([this](const KernelRecord& r) { AddKernel(r); });
  train::SetPhaseObserver([this](RankPhase phase, int64_t) {
    // EnterPhase(kBackward) comes with the first final gradient. The trace uses the first kernel of
    // backward instead (AddKernel).
    if (phase != RankPhase::kBackward && recorder_->is_on) BeginPhase(phase, Clock::now());
  });
}

void Trace::OnStepBegin(int64_t step) {
  const Time now = Clock::now();
  EndStep(now);  // a step that was not applied is still open
  const bool is_on = options_.Includes(step);
  recorder_->step = step;
  recorder_->is_on = is_on;
  reached_range_ |= is_on;
  in_step_ = is_on;
  step_start_ = now;
}

void Trace::BeginPhase(RankPhase phase, Time now) {
  // Evaluation enters its phase for each batch; the trace shows one phase.
  if (in_phase_ && phase == phase_ && phase == RankPhase::kEvaluation) return;
  EndPhase(now);
  in_phase_ = true;
  phase_ = phase;
  phase_start_ = now;
}

void Trace::EndPhase(Time now) {
  if (!std::exchange(in_phase_, false)) return;
  recorder_->ring.Add({.start = phase_start_,
                       .end = now,
                       .step = recorder_->step,
                       .kind = TraceKind::kPhase,
                       .name = recorder_->ring.NameId(Name(phase_))});
}

void Trace::EndStep(Time now) {
  EndPhase(now);
  if (!std::exchange(in_step_, false)) return;
  recorder_->ring.Add({.start = step_start_, .end = now, .step = recorder_->step});
}

void Trace::AddKernel(const KernelRecord& kernel) {
  if (!recorder_->is_on) return;
  if (in_phase_ && phase_ == RankPhase::kForward && kernel.phase == Phase::kBackward)
    BeginPhase(RankPhase::kBackward, kernel.start);
  if (!options_.kernels) return;
  const auto index = static_cast<size_t>(kernel.step);
  while (kernel_names_.size() <= index) {
    kernel_names_.push_back(0);
    kernel_kinds_.push_back(0);
  }
  if (kernel_kinds_[index] == 0) {
    kernel_names_[index] = recorder_->ring.NameId(kernel.name);
    kernel_kinds_[index] = recorder_->ring.NameId(Name(kernel.kind));
  }
  recorder_->ring.Add({.start = kernel.start,
                       .end = kernel.end,
                       .step = recorder_->step,
                       .kind = TraceKind::kKernel,
                       .name = kernel_names_[index],
                       .detail = kernel_kinds_[index]});
}

void Trace::AddInputCounters(const io::InputCounters& now) {
  const auto spent = [&](double io::InputCounters::*counter) {
    return static_cast<float>(now.*counter - input_.*counter);
  };
  using Input = io::InputCounters;
  recorder_->ring.Add({.start = step_start_,
                       .end = step_start_,
                       .step = recorder_->step,
                       .kind = TraceKind::kInput,
                       .input_ms = {spent(&Input::read_ms), spent(&Input::parse_ms),
                                    spent(&Input::decode_ms), spent(&Input::augment_ms)}});
  input_ = now;
}

void Trace::AddDeviceSpans(const std::vector<train::DeviceSpan>& spans, int64_t step) {
  if (!options_.Includes(step)) return;
  for (const train::DeviceSpan& span : spans) {
    recorder_->ring.Add({.start = span.start,
                         .end = span.end,
                         .step = step,
                         .kind = TraceKind::kDevice,
                         .name = recorder_->ring.NameId(span.what),
                         .bucket = span.bucket,
                         .bytes = span.bytes,
                         .stream = span.stream});
  }
}

void Trace::OnStepEnd(const train::AppliedStep& step) {
  const int64_t number = step.state.step - 1;  // the next step may have begun already
  if (recorder_->is_on) AddInputCounters(step.source.counters());
  AddDeviceSpans(step.result.device_spans, number);
  EndStep(Clock::now());
  ++steps_done_;
  if (options_.is_range()) {
    if (number == options_.last_step) Write();
  } else if (steps_done_ == next_write_) {
    next_write_ *= 2;
    Write();
  }
}

void Trace::OnEvaluationEnd(int64_t /*step*/, const train::Metrics& /*metrics*/,
                            double /*seconds*/) {
  EndPhase(Clock::now());
}

void Trace::OnSave(int64_t /*step*/, double /*seconds*/) {
  EndPhase(Clock::now());
  if (!options_.is_range() && steps_done_ - written_at_ >= options_.num_steps) Write();
}

void Trace::OnTrainEnd(const train::RunState& /*state*/, bool /*finished*/) {
  EndStep(Clock::now());
  const bool has_more = !options_.is_range() || !is_written_;
  // A run without steps keeps the trace of an earlier run.
  if (has_more && reached_range_ && steps_done_ > 0) Write();
  if (!reached_range_ && steps_done_ > 0 && communicator_.rank() == 0) {
    const std::string steps = fmt::format("{}:{}", options_.first_step, options_.last_step);
    LogWarning("watch", "{}: the run had none of these steps; no trace is written",
               Option("trace_steps", steps));
  }
  diagnostics_.SetObserver({});
}

// Throws DiskError at the start of the run if the trace cannot be written, not at its end.
void Trace::RequireWritablePath() const {
  const std::string part = options_.path + ".part";
  if (!std::ofstream(part)) {
    ThrowDiskError("watch", Option("trace") + " " + part, "create", errno);
  }
  std::remove(part.c_str());
}

// Collective.
void Trace::Write() {
  written_at_ = steps_done_;
  is_written_ = true;
  const int64_t first =
      options_.is_range() ? options_.first_step : recorder_->step - options_.num_steps + 1;
  const double clock_offset = diagnostics_.ClockOffset();
  const bool is_writer = communicator_.rank() == 0;
  const std::string part = options_.path + ".part";
  std::ofstream file;
  if (is_writer) file.open(part, std::ios::binary | std::ios::trunc);
  int error = file ? 0 : errno;  // the first one
  const auto note_error = [&] {
    if (!file && error == 0) error = errno;
  };
  TraceJson json(file, zero_);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    std::string bytes;
    if (rank == communicator_.rank()) bytes = Serialize(recorder_->ring.Snapshot(first));
    EventsHeader header{.bytes = bytes.size(), .clock_offset = clock_offset};
    communicator_.Broadcast(std::as_writable_bytes(std::span(&header, 1)), rank,
                            {.what = kTraceTag});
    bytes.resize(header.bytes);
    communicator_.Broadcast(std::as_writable_bytes(std::span(bytes)), rank, {.what = kTraceTag});
    if (!is_writer) continue;
    json.AddRank({.rank = rank,
                  .size = communicator_.size(),
                  .name = communicator_.NameOf(rank),
                  .clock_offset = header.clock_offset},
                 Deserialize(bytes));
    note_error();
  }
  if (!is_writer) return;
  json.Close();
  file.close();
  note_error();
  const bool written = file && std::rename(part.c_str(), options_.path.c_str()) == 0;
  if (!written) {
    if (error == 0) error = errno;
    std::remove(part.c_str());
    if (!std::exchange(warned_, true)) {
      LogWarning("watch", "{}: cannot be written: {}; the run continues",
                 Option("trace", options_.path), std::strerror(error));
    }
  }
  if (const int64_t dropped = recorder_->ring.num_dropped(); written && dropped > 0)
    LogInfo("watch", "{}: holds only the newest {} events of each rank",
            Option("trace", options_.path), Capacity(communicator_.size()));
}

}  // namespace carole::monitoring
