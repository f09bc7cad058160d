// The net of a graph as Keras describes nets, so that keras.models.load_model() rebuilds it from a
// checkpoint.
#pragma once

#include <optional>
#include <string>

#include "io/checkpoint/keras_layout.h"
#include "src/graph/graph.h"
#include "src/optim/optimizers.h"

namespace carole::train {

// The layers between the graph's input "images" and `logits`, and a softmax behind them, in the
// dialect that Keras 2 and 3 both read. The graph must not be fused; dropout is kept where it was
// built for training. nullopt, and a line in the log, when the net needs what Keras has no layer
// for (local response normalization).
std::optional<io::KerasModel> MakeKerasModel(const Graph& graph, ValueId logits,
                                             const std::string& name);

// How Keras goes on training it (training_config): cross entropy without L2 terms, accuracy, and
// the same optimizer at this rate, its slots anew. Empty where Keras has no such optimizer.
std::string MakeKerasTraining(const optim::UpdatePlan& optimizer, double learning_rate);

}  // namespace carole::train
