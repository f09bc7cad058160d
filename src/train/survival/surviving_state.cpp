#include "src/train/survival/surviving_state.h"

#include <array>
#include <csignal>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

// The signals after which the memory of a process cannot be trusted.
constexpr std::array kFatalSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

std::atomic<std::atomic<int32_t>*> fatal_signal_of_rank{nullptr};
std::array<struct sigaction, kFatalSignals.size()> handlers_before;

// Marks the state as damaged, and lets the handler from before act on the same signal.
void OnFatalSignal(int signal) {
  if (std::atomic<int32_t>* mark = fatal_signal_of_rank.load()) mark->store(signal);
  for (size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (kFatalSignals[i] == signal) sigaction(signal, &handlers_before[i], nullptr);
  }
  raise(signal);  // delivered when this handler returns
}

void MarkFatalSignals(std::atomic<int32_t>& mark) {
  fatal_signal_of_rank = &mark;
  static std::atomic<bool> is_installed = false;  // the ranks of a test are threads
  if (is_installed.exchange(true)) return;
  struct sigaction action {};
  action.sa_handler = OnFatalSignal;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < kFatalSignals.size(); ++i)
    sigaction(kFatalSignals[i], &action, &handlers_before[i]);
}

std::shared_ptr<std::byte> AppendRecord(SharedMemory& memory) {
  std::shared_ptr<std::byte> bytes = memory.Append(sizeof(StateRecord));
  if (bytes == nullptr) throw ConfigError("[survivors] shared memory: the system refuses it");
  return bytes;
}

void StoreScalars(const ReplicaView& replica, StateRecord& record) {
  int32_t count = 0;
  const auto store = [&](const std::vector<optim::OptimizerScalar>& scalars) {
    for (const optim::OptimizerScalar& scalar : scalars) {
      CAROLE_CHECK(count < StateRecord::kMaxScalars, "{} scalars", count);
      record.scalars[count++] = scalar.value;
    }
  };
  store(replica.optimizer.scalars());
  if (replica.loss_scale != nullptr) store(replica.loss_scale->scalars());
  record.num_scalars = count;
}

}  // namespace

SurvivingState::SurvivingState()
    : record_memory_(AppendRecord(memory_)), record_(new (record_memory_.get()) StateRecord) {}

SurvivingState::~SurvivingState() {
  std::atomic<int32_t>* mark = &record_->fatal_signal;
  fatal_signal_of_rank.compare_exchange_strong(mark, nullptr);
}

void SurvivingState::TurnOff(std::string_view reason) {
  if (!std::exchange(is_on_, false)) return;
  record_->manifest_position = 0;
  LogInfo("survivors", "{}: has no effect: {}", Option("survivors_checkpoint"), reason);
}

DeviceMemory SurvivingState::Allocate(size_t bytes) {
  if (!is_on_ || bytes == 0) return AllocateOnHost(bytes);
  if (DeviceMemory memory = memory_.Append(bytes)) return memory;
  TurnOff("the system refuses shared memory; check ulimit -f");
  return AllocateOnHost(bytes);
}

void SurvivingState::Describe(const ReplicaView& replica, const std::byte* saved_statistics,
                              std::span<const int> frozen, const RunFacts& facts,
                              const RunState& progress) {
  if (!is_on_) return;
  std::string text;
  try {
    text = Serialize(MakeManifest(replica, saved_statistics, frozen, facts, memory_));
  } catch (const ConfigError& error) {
    return TurnOff(WithoutTag(error.what()));
  }
  const std::shared_ptr<std::byte> bytes = memory_.Append(text.size());
  if (bytes == nullptr) return TurnOff("the system refuses shared memory; check ulimit -f");
  std::memcpy(bytes.get(), text.data(), text.size());
  record_->manifest_bytes = text.size();
  record_->manifest_position = memory_.PositionOf(bytes.get()).value();
  EndChange(replica, progress);
  MarkFatalSignals(record_->fatal_signal);
  if (on_described_) on_described_();
}

void SurvivingState::KeepText(std::string_view text, int64_t epoch) {
  if (!is_on_ || text.size() > KeptText::kMaxBytes) return;
  KeptText& kept = record_->texts[record_->num_texts % std::size(record_->texts)];
  kept.number = 0;
  kept.epoch = epoch;
  kept.bytes = text.size();
  text.copy(kept.text, text.size());
  kept.number = ++record_->num_texts;
}

std::optional<std::string_view> StateRecord::FindText() const {
  const KeptText* newest = nullptr;
  for (const KeptText& kept : texts) {
    const uint64_t number = kept.number;
    if (number == 0 || kept.epoch != progress.epoch || kept.bytes > KeptText::kMaxBytes) continue;
    if (newest == nullptr || number > newest->number) newest = &kept;
  }
  if (newest == nullptr) return std::nullopt;
  return std::string_view(newest->text, newest->bytes);
}

void SurvivingState::MarkStatisticsSaved() {
  if (is_on_) record_->statistics_are_saved = true;
}

bool SurvivingState::BeginChange() {
  if (!is_on_ || !record_->is_whole()) return false;
  ++record_->version;
  return true;
}

void SurvivingState::EndChange(const ReplicaView& replica, const RunState& progress) {
  if (!is_on_) return;
  BeginChange();
  record_->progress = progress;
  StoreScalars(replica, *record_);
  record_->statistics_are_saved = false;
  ++record_->version;
}

void SurvivingState::EndStep(const ReplicaView& replica, bool is_applied) {
  RunState progress = announced_;
  if (!is_applied) --progress.step;
  EndChange(replica, progress);
}

void SurvivingState::EndSwap(bool is_swapped, bool was_whole) {
  if (!is_on_) return;
  record_->averages_are_swapped = is_swapped;
  if (was_whole) ++record_->version;
}

}  // namespace carole::train
