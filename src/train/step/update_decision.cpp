#include "src/train/step/update_decision.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "src/backend/arena_math.h"
#include "src/train/step/phase.h"

namespace carole::train {
namespace {

using collectives::RankPhase;

void BeginLossReduction(const StepOptions& options, InFlightStep& step) {
  (void)step.losses->FinishLocal();
  const auto valid = static_cast<double>(step.batch.valid);
  step.losses->BeginAllReduce(
      {.step = step.input.step,
       .loss_weight =
           options.MinimizesLocalLoss() ? valid / static_cast<double>(step.batch.global_valid) : 1,
       .global_valid = step.batch.global_valid,
       .request_stop = step.input.request_stop,
       .request_save = step.input.request_save});
}

void WaitForLossReduction(InFlightStep& step) {
  const StepLosses::GlobalLosses global = step.losses->WaitForAllReduce();
  StepResult& result = step.result;
  result.losses = global.losses;
  result.total_loss = std::accumulate(global.losses.begin(), global.losses.end(), 0.0);
  result.regularization_loss = global.regularization;
  result.data_loss = result.total_loss - global.regularization;
  result.accuracy = global.accuracy;
  result.stop = global.stop;
  result.save = global.save;
}

// The host reads the losses and decides before the update.
class HostDecision : public UpdateDecision {
 public:
  HostDecision(const StepOptions& options, const Replica& replica, const Backend& backend,
               collectives::FullCommunicator& communicator)
      : options_(options), replica_(replica), backend_(backend), communicator_(communicator) {}

  bool is_on_device() const override { return false; }

  // The losses are reduced before the first bucket: in the same order on every rank, and early
  // enough to be done when backward is done. Reading the losses of an asynchronous device means
  // waiting for it; so that is done after all of backward was enqueued.
  void OnGradient(InFlightStep& step) override {
    if (!backend_.is_asynchronous()) BeginOnce(step);
  }
  void EndBackward(InFlightStep& step) override {
    BeginOnce(step);
    EnterPhase(communicator_, RankPhase::kReduction, step.input.step);
    WaitForLossReduction(step);
  }
  void Decide(InFlightStep& step) override {
    EnterPhase(communicator_, RankPhase::kOptimizer, step.input.step);
    bool is_bad = !std::isfinite(step.result.data_loss);
    if (options_.local_sgd_steps > 0) {
      is_bad = is_bad || !replica_.optimizer->Sums().is_finite;
      is_bad =
          CountRanks(communicator_, is_bad, {.what = "finite check", .step = step.input.step}) > 0;
    }
    if (is_bad) Refuse();
  }

 private:
  void BeginOnce(InFlightStep& step) {
    if (!step.losses->is_reducing()) BeginLossReduction(options_, step);
  }

  // Makes the optimizer skip the update.
  void Refuse() {
    replica_.store->dtype() == DType::kF64 ? InspectNan<double>() : InspectNan<float>();
  }
  template <typename T>
  void InspectNan() {
    const T value = std::numeric_limits<T>::quiet_NaN();
    const DeviceMemory loss = backend_.Allocate(sizeof value);
    backend_.CopyFromHost(loss.get(), reinterpret_cast<const std::byte*>(&value), sizeof value);
    replica_.optimizer->InspectLoss(
        {.data = loss.get(), .shape = {}, .dtype = replica_.store->dtype()});
    backend_.Synchronize();  // the memory is freed here
  }

  const StepOptions& options_;
  const Replica& replica_;
  const Backend& backend_;
  collectives::FullCommunicator& communicator_;
};

// The device reduces the losses and decides. The host learns of it at the end of the step.
class DeviceDecision : public UpdateDecision {
 public:
  DeviceDecision(const StepOptions& options, const Replica& replica, const Backend& backend,
                 collectives::FullCommunicator& communicator)
      : options_(options),
        replica_(replica),
        backend_(backend),
        communicator_(communicator),
        sums_(backend.Allocate(num_losses() * sizeof(float))) {}

  bool is_on_device() const override { return true; }

  void BeginStep() override { has_micro_batch_ = false; }
  // The losses of the last micro-batch are final when backward begins. So backward hides the
  // all-reduce.
  void OnGradient(InFlightStep& step) override {
    if (in_flight_ != nullptr) return;
    AddLosses();
    in_flight_ =
        communicator_.AllReduceAsync(std::span(reinterpret_cast<float*>(sums_.get()), num_losses()),
                                     {.what = "losses on devices", .step = step.input.step});
  }
  void EndMicroBatch() override {
    if (in_flight_ == nullptr) AddLosses();
  }
  void Decide(InFlightStep&) override {
    std::exchange(in_flight_, nullptr)->Wait();
    for (size_t i = 0; i < num_losses(); ++i)
      replica_.optimizer->InspectLoss({.data = sum(i), .shape = {}});
  }
  void End(InFlightStep& step) override {
    EnterPhase(communicator_, RankPhase::kReduction, step.input.step);
    BeginLossReduction(options_, step);
    WaitForLossReduction(step);
    EnterPhase(communicator_, RankPhase::kOptimizer, step.input.step);
  }

 private:
  size_t num_losses() const { return replica_.graph->losses().size(); }
  std::byte* sum(size_t loss) const { return sums_.get() + loss * sizeof(float); }
  void AddLosses() {
    const ArenaMath& math = backend_.arena_math();
    const bool has_earlier_losses = std::exchange(has_micro_batch_, true);
    for (size_t i = 0; i < num_losses(); ++i) {
      const Tensor loss = replica_.executable->OutputMemory(replica_.graph->losses()[i].second);
      if (has_earlier_losses) {
        math.Add(DType::kF32, sum(i), loss.data, 1);
      } else {
        math.Copy(sum(i), loss.data, sizeof(float));
      }
    }
  }

  const StepOptions& options_;
  const Replica& replica_;
  const Backend& backend_;
  collectives::FullCommunicator& communicator_;
  const DeviceMemory sums_;  // one float for each loss, summed over micro-batches and ranks
  std::unique_ptr<collectives::Pending> in_flight_;  // the all-reduce of sums_
  bool has_micro_batch_ = false;
};

}  // namespace

std::unique_ptr<UpdateDecision> MakeUpdateDecision(const StepOptions& options,
                                                   const Replica& replica, const Backend& backend,
                                                   collectives::FullCommunicator& communicator) {
  if (backend.is_asynchronous() && options.local_sgd_steps == 0)
    return std::make_unique<DeviceDecision>(options, replica, backend, communicator);
  return std::make_unique<HostDecision>(options, replica, backend, communicator);
}

}  // namespace carole::train
