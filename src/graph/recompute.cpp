#include "src/graph/recompute.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/graph/flops.h"

namespace carole {
namespace {

// Searches among plans of one form. Dear nodes (much work for each byte of their results) are kept,
// as many as `dear` bytes hold. The forward pass is cut into segments of about `segment` bytes of
// what is left, where least crosses the cut; what crosses is kept. All else is computed again, one
// segment at a time, since backward asks for it in that order.
class Planner {
 public:
  // flops_of_byte: what moving a byte costs (Backend::FlopsOfByte).
  Planner(const Graph& graph, double flops_of_byte)
      : graph_(graph),
        flops_of_byte_(flops_of_byte),
        plain_(PlainSchedule(graph)),
        owners_(MemoryOwners(graph)),
        bytes_(graph.nodes().size(), 0),
        work_(graph.nodes().size(), 0),
        last_read_(graph.nodes().size(), -1),
        output_(graph.nodes().size(), false) {
    for (ValueId id : graph.outputs()) {
      if (graph.value(id).producer != kNone) output_[graph.value(id).producer] = true;
    }
    for (NodeId n : plain_) {
      (graph.nodes()[n].phase == Phase::kForward ? forward_ : backward_).push_back(n);
    }
    for (size_t i = 0; i < forward_.size(); ++i) Measure(static_cast<int>(i));
    MeasureCuts();
    RankByCost();
  }

  RecomputePlan Within(size_t budget) const {
    RecomputePlan best{.schedule = plain_, .peak_bytes = Peak(plain_)};
    if (best.peak_bytes <= budget) return best;
    const auto total = static_cast<double>(total_bytes_);
    for (int halving = 0; halving < kSegmentSteps; ++halving) {
      const double segment = 2 * total * std::pow(2, -0.5 * halving);
      for (int step = 0; step < kDearSteps; ++step) {
        const double dear = total * step / kDearSteps;
        RecomputePlan plan = Make(static_cast<int64_t>(segment), static_cast<int64_t>(dear));
        if (IsBetter(plan, best, budget)) best = std::move(plan);
      }
    }
    return best;
  }

 private:
  static constexpr int kDearSteps = 16;
  static constexpr int kSegmentSteps = 22;  // to a thousandth of all results

  static bool IsBetter(const RecomputePlan& a, const RecomputePlan& b, size_t budget) {
    const bool a_fits = a.peak_bytes <= budget, b_fits = b.peak_bytes <= budget;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.forward_again < b.forward_again : a.peak_bytes < b.peak_bytes;
  }

  size_t Peak(const Schedule& schedule) const { return PeakBytes(Lifetimes(graph_, schedule)); }

  // The forward node whose memory a value has; kNone for inputs and variables.
  NodeId OwnerNode(ValueId id) const {
    return id == kNone || owners_[id] == kNone ? kNone : graph_.value(owners_[id]).producer;
  }

  void Measure(int place) {
    const NodeId n = forward_[place];
    const Node& node = graph_.nodes()[n];
    int64_t moved = 0;
    for (ValueId id : node.inputs) {
      if (id == kNone) continue;
      moved += ValueBytes(graph_, id);
      if (const NodeId owner = OwnerNode(id); owner != kNone) last_read_[owner] = place;
    }
    if (node.kind == OpKind::kReshape) return;
    for (ValueId id : node.outputs) {
      if (id != kNone) bytes_[n] += ValueBytes(graph_, id);
    }
    work_[n] = static_cast<double>(Flops(graph_, node)) +
               flops_of_byte_ * static_cast<double>(moved + bytes_[n]);
    total_bytes_ += bytes_[n];
    total_work_ += work_[n];
  }

  // Bytes that are made at or before a place and read behind it.
  void MeasureCuts() {
    crossing_.assign(forward_.size() + 1, 0);
    for (size_t i = 0; i < forward_.size(); ++i) {
      const NodeId n = forward_[i];
      if (last_read_[n] <= static_cast<int>(i)) continue;
      crossing_[i] += bytes_[n];
      crossing_[last_read_[n]] -= bytes_[n];
    }
    std::partial_sum(crossing_.begin(), crossing_.end(), crossing_.begin());
  }

  // Dearest first; of equals the later, whose memory is free again sooner.
  void RankByCost() {
    by_cost_.assign(forward_.rbegin(), forward_.rend());
    auto cost = [&](NodeId n) {
      return work_[n] / static_cast<double>(std::max<int64_t>(bytes_[n], 1));
    };
    std::stable_sort(by_cost_.begin(), by_cost_.end(),
                     [&](NodeId a, NodeId b) { return cost(a) > cost(b); });
  }

  RecomputePlan Make(int64_t segment, int64_t dear) const {
    std::vector<bool> again(graph_.nodes().size(), false);
    for (NodeId n : forward_) again[n] = !output_[n];
    for (NodeId n : by_cost_) {
      dear -= bytes_[n];
      if (dear < 0) break;
      again[n] = graph_.nodes()[n].kind == OpKind::kReshape;
    }
    KeepAtCuts(segment, again);
    RecomputePlan plan;
    plan.schedule = MakeSchedule(again);
    plan.peak_bytes = Peak(plan.schedule);
    std::vector<bool> seen(graph_.nodes().size(), false);
    for (NodeId n : plan.schedule) {
      if (seen[n]) plan.forward_again += work_[n] / total_work_;
      seen[n] = true;
    }
    return plan;
  }

  void KeepAtCuts(int64_t segment, std::vector<bool>& again) const {
    const int count = static_cast<int>(forward_.size());
    std::vector<int64_t> given_up(count + 1, 0);  // bytes before a place
    for (int i = 0; i < count; ++i)
      given_up[i + 1] = given_up[i] + (again[forward_[i]] ? bytes_[forward_[i]] : 0);
    std::vector<NodeId> alive;  // made before the last cut, read behind it
    int begin = 0, best = -1;
    for (int i = 0; i + 1 < count; ++i) {
      const int64_t held = given_up[i + 1] - given_up[begin];
      if (held >= segment / 2 && (best < 0 || crossing_[i] <= crossing_[best])) best = i;
      if (held < segment) continue;
      alive.insert(alive.end(), forward_.begin() + begin, forward_.begin() + best + 1);
      std::erase_if(alive, [&](NodeId n) { return last_read_[n] <= best; });
      for (NodeId n : alive) again[n] = again[n] && bytes_[n] == 0;
      begin = best + 1;
      best = -1;
    }
    // Backward begins with the last segment: giving it up would save nothing.
    for (int i = begin; begin > 0 && i < count; ++i) again[forward_[i]] = bytes_[forward_[i]] == 0;
  }

  Schedule MakeSchedule(const std::vector<bool>& again) const {
    Schedule schedule = forward_;
    std::vector<bool> there(graph_.nodes().size(), false);
    for (NodeId n : forward_) there[n] = !again[n];
    for (NodeId n : backward_) {
      for (ValueId id : graph_.nodes()[n].inputs) Ensure(id, there, schedule);
      schedule.push_back(n);
    }
    return schedule;
  }

  // Appends what makes this value, unless it is there.
  void Ensure(ValueId id, std::vector<bool>& there, Schedule& schedule) const {
    const NodeId n = id == kNone ? kNone : graph_.value(id).producer;
    if (n == kNone || graph_.nodes()[n].phase != Phase::kForward || there[n]) return;
    there[n] = true;
    for (ValueId input : graph_.nodes()[n].inputs) Ensure(input, there, schedule);
    schedule.push_back(n);
  }

  const Graph& graph_;
  const double flops_of_byte_;
  const Schedule plain_;
  const std::vector<ValueId> owners_;
  std::vector<NodeId> forward_, backward_;
  std::vector<int64_t> bytes_;     // of a node's results; 0 for a reshape
  std::vector<double> work_;       // of one run
  std::vector<int> last_read_;     // place in forward_ of the last reader of a node's results
  std::vector<bool> output_;       // callers read a result
  std::vector<int64_t> crossing_;  // a cut behind each place of forward_
  std::vector<NodeId> by_cost_;
  int64_t total_bytes_ = 0;
  double total_work_ = 0;
};

constexpr double kGiB = 1 << 30;

}  // namespace

RecomputePlan PlanRecomputation(const Graph& graph, const Backend& backend, size_t bytes) {
  return Planner(graph, backend.FlopsOfByte()).Within(bytes);
}

std::unique_ptr<Executable> CompileWithin(const Graph& graph, const Backend& backend,
                                          size_t bytes) {
  const Planner planner(graph, backend.FlopsOfByte());
  constexpr int kAttempts = 8;
  size_t allowed = bytes, least = 0;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    // Workspaces and reorders are known only when kernels are made.
    const RecomputePlan plan = planner.Within(attempt == kAttempts ? 0 : allowed);
    auto executable = std::make_unique<Executable>(graph, backend, nullptr, plan.schedule);
    const size_t arena = executable->statistics().arena_bytes;
    if (arena <= bytes) {
      if (plan.forward_again > 0)
        LogInfo("memory", "activations take {:.2f} GiB; {:.0f} % of the forward pass is done twice",
                static_cast<double>(arena) / kGiB, 100 * plan.forward_again);
      return executable;
    }
    least = arena;
    // In steps that the last attempt, which does most of the work twice, need not be the next for.
    const size_t excess = arena - bytes, less = std::max(excess + excess / 8, bytes / 16);
    allowed = plan.peak_bytes > allowed ? 0 : allowed - std::min(allowed, less);
  }
  throw UsageError(fmt::format(
      "[memory] --activation_memory: the activations do not fit: got {:.2f} GiB, want at least "
      "{:.2f}; use a smaller --batch_size",
      static_cast<double>(bytes) / kGiB, std::ceil(static_cast<double>(least) / kGiB * 100) / 100));
}

}  // namespace carole
