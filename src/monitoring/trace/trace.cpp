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

// Rank 0 holds one rank's events at a time, but the file those of all.
constexpr size_t kMaxEventsOfAll = 1 << 20;
constexpr size_t kMinEvents = 1 << 12;
constexpr char kCarriesTrace[] = "trace";  // tag of our own collectives

size_t Capacity(int num_ranks) {
  return std::clamp(kMaxEventsOfAll / static_cast<size_t>(num_ranks), kMinEvents,
                    Trace::kMaxEvents);
}

// What a rank says before its events.
struct Announcement {
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
    throw UsageError(fmt::format(
        "[flags] --trace_steps: got {}, want a number of last steps, or FIRST:LAST", text));
  }
  if (is_range) {
    options.first_step = *first;
    options.last_step = *last;
  } else {
    options.num_steps = *first;
  }
}

// What other threads touch.
struct Trace::Recorder {
  explicit Recorder(size_t capacity) : ring(capacity) {}

  TraceRing ring;
  std::atomic<bool> is_on = false;
  std::atomic<int64_t> step = 0;
  std::atomic<uint64_t> sequence = 0;

  void AddCollective(const collectives::CollectiveRecord& r) {
    const uint64_t number = sequence++;
    if (!is_on || r.what == kCarriesTrace) return;
    ring.Add({.start = r.start,
              .end = r.end,
              .step = step,
              .kind = TraceKind::kCollective,
              .name = ring.NumberOf(r.what),
              .detail = ring.NumberOf(r.operation),
              .algorithm = ring.NumberOf(r.algorithm),
              .bucket = r.bucket,
              .sequence = number,
              .bytes = r.bytes,
              .agreed = r.agreed});
  }
};

Trace::Trace(TraceOptions options, train::TrainStep& step, collectives::Communicator& communicator)
    : options_(std::move(options)),
      step_(step),
      communicator_(communicator),
      recorder_(std::make_shared<Recorder>(Capacity(communicator.size()))) {}

Trace::~Trace() { train::SetPhaseObserver({}); }

void Trace::Started(const train::RunState& /*state*/) {
  if (communicator_.rank() == 0) RequireFolder();
  zero_ = Clock::now();  // before any rank gets through the next line
  communicator_.Barrier({.what = kCarriesTrace});
  communicator_.SetObserver([recorder = recorder_](const collectives::CollectiveRecord& r) {
    recorder->AddCollective(r);
  });
  step_.executable().AddObserver([this](const KernelRecord& r) { AddKernel(r); });
  train::SetPhaseObserver([this](RankPhase phase, int64_t) {
    // Backward begins with its first kernel, not with the first gradient that is final.
    if (phase != RankPhase::kBackward && recorder_->is_on) Enter(phase, Clock::now());
  });
}

void Trace::StepBegins(int64_t step) {
  const Time now = Clock::now();
  CloseStep(now);  // of a step that was not applied
  const bool is_on =
      !options_.is_range() || (step >= options_.first_step && step <= options_.last_step);
  recorder_->step = step;
  recorder_->is_on = is_on;
  met_range_ |= is_on;
  in_step_ = is_on;
  step_start_ = now;
}

void Trace::Enter(RankPhase phase, Time now) {
  if (in_phase_ && phase == phase_ && phase == RankPhase::kEvaluation) return;  // the next batch
  Leave(now);
  in_phase_ = true;
  phase_ = phase;
  phase_start_ = now;
}

void Trace::Leave(Time now) {
  if (!std::exchange(in_phase_, false)) return;
  recorder_->ring.Add({.start = phase_start_,
                       .end = now,
                       .step = recorder_->step,
                       .kind = TraceKind::kPhase,
                       .name = recorder_->ring.NumberOf(Name(phase_))});
}

void Trace::CloseStep(Time now) {
  Leave(now);
  if (!std::exchange(in_step_, false)) return;
  recorder_->ring.Add({.start = step_start_, .end = now, .step = recorder_->step});
}

void Trace::AddKernel(const KernelRecord& kernel) {
  if (!recorder_->is_on) return;
  if (in_phase_ && phase_ == RankPhase::kForward && kernel.phase == Phase::kBackward)
    Enter(RankPhase::kBackward, kernel.start);
  if (!options_.kernels) return;
  const auto place = static_cast<size_t>(kernel.step);
  while (kernel_names_.size() <= place) {
    kernel_names_.push_back(0);
    kernel_kinds_.push_back(0);
  }
  if (kernel_kinds_[place] == 0) {
    kernel_names_[place] = recorder_->ring.NumberOf(kernel.name);
    kernel_kinds_[place] = recorder_->ring.NumberOf(Name(kernel.kind));
  }
  recorder_->ring.Add({.start = kernel.start,
                       .end = kernel.end,
                       .step = recorder_->step,
                       .kind = TraceKind::kKernel,
                       .name = kernel_names_[place],
                       .detail = kernel_kinds_[place]});
}

void Trace::AddInput(const io::InputCounters& now) {
  const auto spent = [&](double io::InputCounters::*part) {
    return static_cast<float>(now.*part - input_.*part);
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

void Trace::StepEnded(const train::AppliedStep& step) {
  if (recorder_->is_on) AddInput(step.source.counters());
  CloseStep(Clock::now());
  ++steps_done_;
  if (options_.is_range()) {
    if (recorder_->step == options_.last_step) Write();
  } else if (steps_done_ == next_write_) {
    next_write_ *= 2;
    Write();
  }
}

void Trace::Evaluated(int64_t /*step*/, const train::Metrics& /*metrics*/, double /*seconds*/) {
  Leave(Clock::now());
}

void Trace::Saved(int64_t /*step*/, double /*seconds*/) {
  Leave(Clock::now());
  if (!options_.is_range() && steps_done_ - written_at_ >= options_.num_steps) Write();
}

void Trace::Ended(const train::RunState& /*state*/, bool /*finished*/) {
  CloseStep(Clock::now());
  const bool has_more = !options_.is_range() || !is_written_;
  // A run that had nothing to do keeps the earlier trace.
  if (has_more && met_range_ && steps_done_ > 0) Write();
  if (!met_range_ && steps_done_ > 0 && communicator_.rank() == 0) {
    LogWarning("watch", "--trace_steps={}:{}: the run had none of them, so no trace is written",
               options_.first_step, options_.last_step);
  }
  communicator_.SetObserver({});
}

// Else a run would be over before it is known that its trace has no place.
void Trace::RequireFolder() const {
  const std::string part = options_.path + ".part";
  if (!std::ofstream(part)) ThrowDiskError("watch", "--trace " + part, "create", errno);
  std::remove(part.c_str());
}

// Collective. One rank's events at a time are on all ranks, which bounds the memory. Clocks drift
// apart, so they are compared now, right behind the steps that are written.
void Trace::Write() {
  written_at_ = steps_done_;
  is_written_ = true;
  const int64_t first =
      options_.is_range() ? options_.first_step : recorder_->step - options_.num_steps + 1;
  const double clock_offset = communicator_.ClockOffset();
  const bool is_writer = communicator_.rank() == 0;
  const std::string part = options_.path + ".part";
  std::ofstream file;
  if (is_writer) file.open(part, std::ios::binary | std::ios::trunc);
  int error = file ? 0 : errno;  // of what failed first
  const auto look = [&] {
    if (!file && error == 0) error = errno;
  };
  TraceJson json(file, zero_);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    std::string bytes;
    if (rank == communicator_.rank()) bytes = Serialize(recorder_->ring.Snapshot(first));
    Announcement announcement{.bytes = bytes.size(), .clock_offset = clock_offset};
    communicator_.Broadcast(std::as_writable_bytes(std::span(&announcement, 1)), rank,
                            {.what = kCarriesTrace});
    bytes.resize(announcement.bytes);
    communicator_.Broadcast(std::as_writable_bytes(std::span(bytes)), rank,
                            {.what = kCarriesTrace});
    if (!is_writer) continue;
    json.AddRank({.rank = rank,
                  .size = communicator_.size(),
                  .name = communicator_.NameOf(rank),
                  .clock_offset = announcement.clock_offset},
                 Deserialize(bytes));
    look();
  }
  if (!is_writer) return;
  json.Close();
  file.close();
  look();
  const bool written = file && std::rename(part.c_str(), options_.path.c_str()) == 0;
  if (!written) {
    if (error == 0) error = errno;
    std::remove(part.c_str());
    if (!std::exchange(warned_, true)) {
      LogWarning("watch", "--trace: {} cannot be written; the run goes on: {}", options_.path,
                 std::strerror(error));
    }
  }
  if (const int64_t dropped = recorder_->ring.num_dropped(); written && dropped > 0)
    LogInfo("watch", "trace: only the newest {} events of a rank are in {}",
            Capacity(communicator_.size()), options_.path);
}

}  // namespace carole::monitoring
