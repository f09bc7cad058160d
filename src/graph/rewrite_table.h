// A rewrite of the graph as a row of a table, and the function that applies tables. Private to this
// room: rewrites.h declares what others call.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "src/backend/backend.h"
#include "src/graph/graph.h"
#include "src/graph/rewrites.h"

namespace carole {

// Two adjacent nodes: one input of `consumer` is the first output of `producer`. A missing producer
// stands for any value.
struct Pattern {
  std::optional<OpKind> producer;
  OpKind consumer;
  static constexpr int kAnyInput = -1;
  int input = 0;               // the index of the consumer's input
  bool is_only_reader = true;  // nothing but the consumer reads the value between them
};

// A place where a pattern was found.
struct Match {
  const Graph& graph;
  const std::vector<int>& readers;  // the number of readers of each value (CountReaders())
  NodeId producer_id;               // kNone: the value between is an input or a variable
  NodeId consumer_id;
  int input;

  const Node& producer() const { return graph.nodes()[producer_id]; }
  const Node& consumer() const { return graph.nodes()[consumer_id]; }
  ValueId between() const { return consumer().inputs[input]; }
  ValueId other_summand() const { return consumer().inputs[1 - input]; }  // of an add of two
};

// What the two nodes of a match become. A missing node is removed.
struct Replacement {
  std::optional<Node> producer = {};
  std::optional<Node> consumer = {};
  std::optional<Shape> between = {};  // the new shape of the value between them, if it changes
};

// One row. It is applied to each match in the order of the graph, once for each consumer. The
// replacement is made only if `guard` accepts the match and the backend supports the new nodes.
struct Rewrite {
  std::string_view name;
  Pattern pattern;
  bool (*guard)(const Match& match) = [](const Match&) { return true; };
  Replacement (*replacement)(const Match& match) = nullptr;
  // For a rewrite that changes other nodes than the two: used instead of `replacement`. Returns
  // whether it changed the graph.
  bool (*apply)(const Match& match, Graph& graph, const Backend& backend) = nullptr;
  // Asks the backend about the types that the nodes will have with 16-bit activations
  // (precision.h).
  bool asks_for_activation_type = false;
  bool starts_at_last_node = false;  // visits the nodes in reverse order
};

// Returns for each value the number of its readers: inputs of nodes, and outputs of the graph.
std::vector<int> CountReaders(const Graph& graph);

// Applies the rows one after the other, each to the whole graph. Without a backend, all
// replacements count as supported; rows with `apply` need one.
RewriteCounts ApplyRewrites(std::span<const Rewrite> table, Graph& graph, const Backend* backend);

}  // namespace carole
