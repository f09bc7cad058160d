#include "src/graph/rewrite_table.h"

#include <utility>

#include "src/graph/precision.h"

namespace carole {
namespace {

// Applies one row to a graph.
class Rewriter {
 public:
  Rewriter(const Rewrite& rewrite, Graph& graph, const Backend* backend)
      : rewrite_(rewrite), graph_(graph), backend_(backend), readers_(CountReaders(graph)) {}

  // Returns how often it was applied.
  int Run() {
    const auto count = static_cast<NodeId>(graph_.nodes().size());
    int applied = 0;
    for (NodeId i = 0; i < count; ++i)
      applied += TryConsumer(rewrite_.starts_at_last_node ? count - 1 - i : i);
    return applied;
  }

 private:
  bool TryConsumer(NodeId consumer) {
    const Node& node = graph_.nodes()[consumer];
    if (node.dead || node.kind != rewrite_.pattern.consumer) return false;
    if (rewrite_.pattern.input != Pattern::kAnyInput)
      return TryInput(consumer, rewrite_.pattern.input);
    const int inputs = static_cast<int>(node.inputs.size());
    for (int input = 0; input < inputs; ++input) {
      if (TryInput(consumer, input)) return true;
    }
    return false;
  }

  bool TryInput(NodeId consumer, int input) {
    const ValueId between = graph_.nodes()[consumer].inputs[input];
    if (between == kNone) return false;
    const Match match{graph_, readers_, graph_.value(between).producer, consumer, input};
    if (!Fits(match) || !rewrite_.guard(match)) return false;
    return rewrite_.apply == nullptr ? Replace(match, rewrite_.replacement(match))
                                     : rewrite_.apply(match, graph_, *backend_);
  }

  bool Fits(const Match& match) const {
    const Pattern& pattern = rewrite_.pattern;
    if (!pattern.producer) return true;
    return match.producer_id != kNone && match.producer().kind == *pattern.producer &&
           match.producer().outputs[0] == match.between() &&
           (!pattern.is_only_reader || readers_[match.between()] == 1);
  }

  bool Replace(const Match& match, Replacement replacement) {
    const ValueId between = match.between();
    const Shape shape = graph_.shape(between);
    if (replacement.between) graph_.SetShape(between, *replacement.between);
    if (!IsSupported(match, replacement.producer) || !IsSupported(match, replacement.consumer)) {
      graph_.SetShape(between, shape);
      return false;
    }
    Put(match.producer_id, std::move(replacement.producer));
    Put(match.consumer_id, std::move(replacement.consumer));
    return true;
  }

  bool IsSupported(const Match& match, const std::optional<Node>& node) const {
    if (!node || backend_ == nullptr) return true;
    OpSpec spec = graph_.Spec(*node);
    if (rewrite_.asks_for_activation_type) {
      spec.inputs[match.input].dtype = backend_->activation_dtype();
      UnifyTypes(spec);
    }
    return backend_->Supports(spec);
  }

  void Put(NodeId id, std::optional<Node> replacement) {
    Node& node = graph_.mutable_nodes()[id];
    if (!replacement) {
      node.dead = true;
      return;
    }
    node = std::move(*replacement);
    for (ValueId output : node.outputs) {
      if (output != kNone) graph_.SetProducer(output, id);
    }
  }

  const Rewrite& rewrite_;
  Graph& graph_;
  const Backend* const backend_;
  const std::vector<int> readers_;  // before the row is applied
};

}  // namespace

std::vector<int> CountReaders(const Graph& graph) {
  std::vector<int> readers(graph.num_values(), 0);
  for (const Node& node : graph.nodes()) {
    if (node.dead) continue;
    for (ValueId id : node.inputs) {
      if (id != kNone) ++readers[id];
    }
  }
  for (ValueId id : graph.outputs()) ++readers[id];
  return readers;
}

RewriteCounts ApplyRewrites(std::span<const Rewrite> table, Graph& graph, const Backend* backend) {
  RewriteCounts counts;
  for (const Rewrite& rewrite : table)
    counts[rewrite.name] += Rewriter(rewrite, graph, backend).Run();
  return counts;
}

}  // namespace carole
