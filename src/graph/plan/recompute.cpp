// Activation recomputation: the search for a schedule that fits into a memory budget.
//
// In training, forward's results are kept until backward has read them, so memory peaks at the end
// of the forward pass. A result can be dropped instead and computed again shortly before backward
// reads it. The question is which ones. A graph of n nodes has 2^n answers, so the planner searches
// among plans of one form, which has two parameters:
//
//   kept_bytes   Expensive nodes (much work for each byte of results, such as convolutions) keep
//                their results: those with the highest ratio, up to this many bytes.
//   segment      The forward pass is cut into segments. Each holds about this many bytes of the
//                other results. A cut is made where the fewest bytes cross it, that is, are made
//                before it and read after it. Results that cross a cut are kept.
//
// All other results are dropped and recomputed. Backward visits the segments in reverse order, so
// one segment is recomputed at a time, from the results that were kept at the cut before it. The
// last segment is not dropped: backward begins with it.
//
// Example: a chain of 8 nodes f1 ... f8 whose results have 1 MB each, without expensive nodes.
// Without recomputation, 8 MB live at the end of the forward pass. With segment = 4 MB there is one
// cut, after f4. f4 is kept, f5 to f8 are the last segment, and f1 to f3 are recomputed:
//   f1 f2 f3 f4 f5 f6 f7 f8   b8 b7 b6 b5   f1 f2 f3   b4 b3 b2 b1
// At the end of the forward pass, 5 MB live: the results of f4 to f8. While b4 runs, those of f1 to
// f4 live. So the peak falls from 8 MB to 5 MB (plus gradients) for 3/8 of the forward pass done
// twice.
//
// If the plain schedule fits, it is used. Else the search tries 16 values of kept_bytes times 22
// sizes of segments: from twice the bytes of all results (no cut) down to a thousandth, each
// smaller by sqrt(2). For each it makes the schedule and computes its peak (schedule.h:
// Lifetimes()). It takes the plan that fits with the least work, or the one with the least memory
// if none fits. All are tried because the peak does not simply fall with a parameter: a smaller
// segment needs less memory itself, but more cuts keep more results.
//
// The work of a node is its floating-point operations plus its bytes read and written times
// Backend::FlopsPerByte(). So cheap, memory-bound nodes (ReLU, batch norm) are recomputed first.
//
// CompileWithin() knows the real size only when kernels have been made: they add workspaces and
// reorders, and some write in place. It therefore asks for a plan, compiles it, and if the arena is
// too large asks again for a plan with a smaller peak. The last of 8 attempts asks for the smallest
// plan.
#include "src/graph/plan/recompute.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/backend/ops/copies.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/graph/flops.h"
#include "src/graph/plan/compiler.h"

namespace carole {
namespace {

// Searches for the best plan. See the head of this file. An index "in forward_" is the position of
// a forward node in the order of the forward pass.
class Planner {
 public:
  // flops_per_byte: the cost of moving a byte (Backend::FlopsPerByte).
  Planner(const Graph& graph, double flops_per_byte)
      : graph_(graph),
        flops_per_byte_(flops_per_byte),
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
    for (size_t i = 0; i < forward_.size(); ++i) MeasureNode(static_cast<int>(i));
    MeasureCuts();
    RankByCost();
  }

  // Returns the plan with the least work that needs at most `budget` bytes, or the smallest one.
  RecomputePlan Within(size_t budget) const {
    RecomputePlan best{.schedule = plain_, .peak_bytes = Peak(plain_)};
    if (best.peak_bytes <= budget) return best;
    const auto total = static_cast<double>(total_bytes_);
    for (int halving = 0; halving < kSegmentSteps; ++halving) {
      const double segment = 2 * total * std::pow(2, -0.5 * halving);
      for (int step = 0; step < kKeptSteps; ++step) {
        const double kept_bytes = total * step / kKeptSteps;
        RecomputePlan plan = Make(static_cast<int64_t>(segment), static_cast<int64_t>(kept_bytes));
        if (IsBetter(plan, best, budget)) best = std::move(plan);
      }
    }
    return best;
  }

 private:
  static constexpr int kKeptSteps = 16;
  static constexpr int kSegmentSteps = 22;  // down to a thousandth of all results' bytes

  static bool IsBetter(const RecomputePlan& a, const RecomputePlan& b, size_t budget) {
    const bool a_fits = a.peak_bytes <= budget, b_fits = b.peak_bytes <= budget;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.recomputed_fraction < b.recomputed_fraction : a.peak_bytes < b.peak_bytes;
  }

  size_t Peak(const Schedule& schedule) const { return PeakBytes(Lifetimes(graph_, schedule)); }

  // The forward node that made the memory of a value; kNone for inputs and variables.
  NodeId OwnerNode(ValueId id) const {
    return id == kNone || owners_[id] == kNone ? kNone : graph_.value(owners_[id]).producer;
  }

  // Computes bytes and work of a node, and notes it as reader of its inputs.
  void MeasureNode(int index) {
    const NodeId n = forward_[index];
    const Node& node = graph_.nodes()[n];
    int64_t moved = 0;
    for (ValueId id : node.inputs) {
      if (id == kNone) continue;
      moved += ValueBytes(graph_, id);
      if (const NodeId owner = OwnerNode(id); owner != kNone) last_read_[owner] = index;
    }
    if (node.kind == op::kReshape) return;
    for (ValueId id : node.outputs) {
      if (id != kNone) bytes_[n] += ValueBytes(graph_, id);
    }
    work_[n] = static_cast<double>(Flops(graph_, node)) +
               flops_per_byte_ * static_cast<double>(moved + bytes_[n]);
    total_bytes_ += bytes_[n];
    total_work_ += work_[n];
  }

  // Computes for a cut after each index of forward_ the bytes that are made before the cut and read
  // after it.
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

  // Sorts nodes by work for each byte, highest first. If two are equal, the later node comes
  // first, because backward frees its memory sooner.
  void RankByCost() {
    by_cost_.assign(forward_.rbegin(), forward_.rend());
    auto cost = [&](NodeId n) {
      return work_[n] / static_cast<double>(std::max<int64_t>(bytes_[n], 1));
    };
    std::stable_sort(by_cost_.begin(), by_cost_.end(),
                     [&](NodeId a, NodeId b) { return cost(a) > cost(b); });
  }

  // Makes the plan with these parameters.
  RecomputePlan Make(int64_t segment, int64_t kept_bytes) const {
    std::vector<bool> recomputed(graph_.nodes().size(), false);
    // Folded weights depend on statistics that the forward pass updates after it has read them.
    for (NodeId n : forward_)
      recomputed[n] = !output_[n] && !(graph_.nodes()[n].kind == op::kFoldWeights);
    for (NodeId n : by_cost_) {
      kept_bytes -= bytes_[n];
      if (kept_bytes < 0) break;
      recomputed[n] = graph_.nodes()[n].kind == op::kReshape;
    }
    KeepAtCuts(segment, recomputed);
    RecomputePlan plan;
    plan.schedule = MakeSchedule(recomputed);
    plan.peak_bytes = Peak(plan.schedule);
    std::vector<bool> seen(graph_.nodes().size(), false);
    for (NodeId n : plan.schedule) {
      if (seen[n]) plan.recomputed_fraction += work_[n] / total_work_;
      seen[n] = true;
    }
    return plan;
  }

  // Chooses the cuts, and marks the results that cross a cut and those of the last segment as kept.
  void KeepAtCuts(int64_t segment, std::vector<bool>& recomputed) const {
    const int count = static_cast<int>(forward_.size());
    std::vector<int64_t> dropped_before(count + 1, 0);  // bytes dropped before an index of forward_
    for (int i = 0; i < count; ++i)
      dropped_before[i + 1] =
          dropped_before[i] + (recomputed[forward_[i]] ? bytes_[forward_[i]] : 0);
    std::vector<NodeId> crossing;  // nodes whose results cross the last cut
    int begin = 0, best = -1;
    for (int i = 0; i + 1 < count; ++i) {
      const int64_t held = dropped_before[i + 1] - dropped_before[begin];
      if (held >= segment / 2 && (best < 0 || crossing_[i] <= crossing_[best])) best = i;
      if (held < segment) continue;
      crossing.insert(crossing.end(), forward_.begin() + begin, forward_.begin() + best + 1);
      std::erase_if(crossing, [&](NodeId n) { return last_read_[n] <= best; });
      for (NodeId n : crossing) recomputed[n] = recomputed[n] && bytes_[n] == 0;
      begin = best + 1;
      best = -1;
    }
    // Backward begins with the last segment, so to drop its results would save nothing.
    for (int i = begin; begin > 0 && i < count; ++i)
      recomputed[forward_[i]] = bytes_[forward_[i]] == 0;
  }

  // Returns the forward pass, then the backward pass with dropped nodes inserted before their first
  // reader.
  Schedule MakeSchedule(const std::vector<bool>& recomputed) const {
    Schedule schedule = forward_;
    std::vector<bool> available(graph_.nodes().size(), false);
    for (NodeId n : forward_) available[n] = !recomputed[n];
    for (NodeId n : backward_) {
      for (ValueId id : graph_.nodes()[n].inputs) AppendProducers(id, available, schedule);
      schedule.push_back(n);
    }
    return schedule;
  }

  // Appends the nodes that make this value, unless it is available.
  void AppendProducers(ValueId id, std::vector<bool>& available, Schedule& schedule) const {
    const NodeId n = id == kNone ? kNone : graph_.value(id).producer;
    if (n == kNone || graph_.nodes()[n].phase != Phase::kForward || available[n]) return;
    available[n] = true;
    for (ValueId input : graph_.nodes()[n].inputs) AppendProducers(input, available, schedule);
    schedule.push_back(n);
  }

  const Graph& graph_;
  const double flops_per_byte_;
  const Schedule plain_;
  const std::vector<ValueId> owners_;
  std::vector<NodeId> forward_, backward_;
  std::vector<int64_t> bytes_;     // of a node's results; 0 for a reshape
  std::vector<double> work_;       // of one run of a node
  std::vector<int> last_read_;     // index in forward_ of the last reader of a node's results
  std::vector<bool> output_;       // whether callers read a result of the node
  std::vector<int64_t> crossing_;  // bytes that cross a cut after each index of forward_
  std::vector<NodeId> by_cost_;    // forward nodes, most expensive first
  int64_t total_bytes_ = 0;
  double total_work_ = 0;
};

constexpr double kGiB = 1 << 30;

}  // namespace

RecomputePlan PlanRecomputation(const Graph& graph, const Backend& backend, size_t bytes) {
  return Planner(graph, backend.FlopsPerByte()).Within(bytes);
}

Plan CompileWithin(const Graph& graph, const Backend& backend, size_t bytes) {
  const Planner planner(graph, backend.FlopsPerByte());
  constexpr int kAttempts = 8;
  size_t allowed = bytes, least = 0;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    // The size of the arena is known only when the kernels have been made.
    const RecomputePlan recomputed = planner.Within(attempt == kAttempts ? 0 : allowed);
    Plan plan = Compile(graph, backend, {.schedule = recomputed.schedule});
    const size_t arena = plan.statistics.arena_bytes;
    if (arena <= bytes) {
      if (recomputed.recomputed_fraction > 0)
        LogInfo("memory",
                "activations take {:.2f} GiB; {:.0f} % of the forward pass is computed twice",
                static_cast<double>(arena) / kGiB, 100 * recomputed.recomputed_fraction);
      return plan;
    }
    least = arena;
    // Lower the budget by a bit more than the excess, so that one of the next attempts fits: the
    // last attempt recomputes most of the forward pass.
    const size_t excess = arena - bytes, less = std::max(excess + excess / 8, bytes / 16);
    allowed = recomputed.peak_bytes > allowed ? 0 : allowed - std::min(allowed, less);
  }
  throw UsageError({.tag = "memory",
                    .option = "activation_memory",
                    .problem = "the activations do not fit",
                    .got = fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB),
                    .want = fmt::format("at least {:.2f}",
                                        std::ceil(static_cast<double>(least) / kGiB * 100) / 100),
                    .hint = "use a smaller " + Option("batch_size")});
}

}  // namespace carole
