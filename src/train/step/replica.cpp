#include "src/train/step/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/ranks/rank_local_work.h"
#include "collectives/ranks/settings_check.h"
#include "src/backend/host/vector_math.h"
#include "src/core/error.h"
#include "src/graph/autodiff.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/recompute.h"
#include "src/graph/precision.h"
#include "src/graph/rewrites.h"
#include "src/train/state/freeze.h"
#include "src/train/step/step_losses.h"
#include "src/train/step/step_memory.h"
#include "src/train/survival/state_memory.h"

namespace carole::train {
namespace {

// Returns segments of trainable variables in the weights arena, in ascending order: those that the
// optimizer regularizes, or those that it does not. It leaves variables out whose L2 loss is in the
// graph (Variable::l2_in_graph), unless it decays the weights itself.
std::vector<Segment> SegmentsOf(const VariableStore& store, bool regularized,
                                double loss_weight_decay) {
  std::vector<Segment> segments;
  for (const VariableSlice& p : store.variables()) {
    const bool in_graph = p.l2_in_graph && loss_weight_decay != 0;
    if (p.trainable && (p.l2_regularized && !in_graph) == regularized)
      segments.push_back({p.offset, p.offset + p.count});
  }
  std::sort(segments.begin(), segments.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return segments;
}

}  // namespace

Replica::Replica(std::unique_ptr<Graph> net, const Backend& backend,
                 collectives::FullCommunicator& communicator, const StepOptions& options)
    : graph(std::move(net)),
      frozen(FreezeOutside(*graph, options.trainable_scopes)),
      loss_scale(options.loss_scale),
      weight_decay_(
          optim::FindOptimizer(options.optimizer).LossWeightDecay(options.optimizer_options)) {
  graph->MarkOutput(StepLosses::LogitsOf(*graph));
  Fuse(*graph, backend);
  Differentiate(*graph);
  FuseGradients(*graph, backend);
  StoreActivationsAs(backend.activation_dtype(), *graph);
  // A rank without cached kernel plans searches for the fastest ones, which may take minutes.
  collectives::RunRankLocal(communicator, "plans", [&] {
    executable = std::make_unique<Executable>(
        options.activation_bytes == 0 ? Compile(*graph, backend)
                                      : CompileWithin(*graph, backend, options.activation_bytes));
  });
  CheckLayouts(communicator);
  SurvivingState* const survivors = options.survivors;
  MakeInStateMemory(survivors, backend, [&] { MakeStore(backend, communicator, options); });
  executable->Bind(*store);
  if (options.sync_batch_norm) CheckSchedule(communicator);
  MakeInStateMemory(survivors, backend, [&] {
    MakeOptimizer(backend, options);
    if (options.moving_average_decay != 0) MakeAverages(backend, options.moving_average_decay);
  });
}

// If the communicator reduces gradients, they are in its memory, so that it needs no copies. If a
// device's gradients are copied to the host first, they are in the device's own memory.
void Replica::MakeStore(const Backend& backend, collectives::FullCommunicator& communicator,
                        const StepOptions& options) {
  RequireMemory(backend, *graph, executable->plan().statistics.arena_bytes, options);
  VariableStore::Allocate allocate_gradients;
  const bool is_device = backend.has_own_memory();
  if (!is_device || (communicator.size() > 1 && !options.NeedsHostReduction())) {
    allocate_gradients = [&](size_t bytes) {
      gradients =
          is_device ? communicator.AllocateDeviceArena(bytes) : communicator.AllocateArena(bytes);
      return gradients->data();
    };
  }
  store = executable->MakeStore(allocate_gradients);
}

// Ranks exchange gradients and weights in the layouts that their kernels chose. So all ranks must
// have the same layouts.
void Replica::CheckLayouts(collectives::Communicator& communicator) const {
  const std::vector<uint64_t> all =
      AllGather(communicator, executable->plan().LayoutHash(), {.what = "layouts"});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(
        fmt::format("[train] layouts: rank {} uses other memory layouts for weights than rank 0: "
                    "got plan {:016x}, want {:016x}; start all ranks with the same program and "
                    "flags on CPUs of one kind, or set ONEDNN_MAX_CPU_ISA to one value on all",
                    rank, all[rank], all[0]));
  }
}

// With SyncBN, ranks communicate in the order in which their kernels run. Activation recomputation
// changes that order, and it depends on the available memory. So it must be the same on all ranks.
void Replica::CheckSchedule(collectives::Communicator& communicator) const {
  collectives::CheckSettingsMatch(
      communicator, {{fmt::format("order of kernels ({} needs the same {} on all ranks)",
                                  Option("sync_batch_norm"), Option("activation_memory")),
                      fmt::format("hash {:016x}", executable->plan().ScheduleHash())}});
}

void Replica::MakeOptimizer(const Backend& backend, const StepOptions& options) {
  optim::ParameterArenas arenas{.dtype = store->dtype(),
                                .weights = store->weights_base(),
                                .gradients = store->gradients_base(),
                                .count = store->trainable_count(),
                                .regularized = SegmentsOf(*store, true, weight_decay_),
                                .not_regularized = SegmentsOf(*store, false, weight_decay_),
                                .copies = executable->TakeWeightCopies()};
  optimizer = std::make_unique<optim::Optimizer>(optim::FindOptimizer(options.optimizer),
                                                 options.optimizer_options, arenas, backend);
}

void Replica::MakeAverages(const Backend& backend, double decay) {
  moving_averages = std::make_unique<optim::MovingAverages>(
      decay, store->dtype(),
      std::vector{std::span(store->weights_base(), store->weights_bytes()),
                  std::span(store->statistics_base(), store->model_statistics_bytes())},
      backend);
}

std::vector<int> Replica::EqualStatistics(const StepOptions& options) const {
  if (!options.average_statistics && !options.sync_batch_norm && !options.reproducible &&
      options.local_sgd_steps == 0)
    return frozen;
  std::vector<int> all;
  for (size_t v = 0; v < store->variables().size(); ++v) {
    if (!store->variables()[v].trainable) all.push_back(static_cast<int>(v));
  }
  return all;
}

double Replica::FrozenLoss() {
  if (frozen_loss_) return *frozen_loss_;
  double squares = 0;
  for (int v : frozen) {
    const VariableSlice& p = store->variables()[v];
    if (!p.l2_regularized || p.l2_in_graph) continue;
    std::vector<double> values(static_cast<size_t>(p.tf_shape.size()));
    store->ReadFrom(store->statistics_base(), v, std::span<double>(values));
    squares += host::SumOfSquares(values.data(), p.tf_shape.size());
  }
  frozen_loss_ = 0.5 * weight_decay_ * squares;
  return *frozen_loss_;
}

}  // namespace carole::train
