// Describes the net of a graph in Keras's form, so that keras.models.load_model() can rebuild it
// from a checkpoint. This is the first header of the room src/export, which may include the graph,
// the optimizers and io/checkpoint. A new operation needs a case in keras_layers.cpp.
#pragma once

#include <optional>
#include <string>

#include "io/checkpoint/keras_layout.h"
#include "src/graph/graph.h"
#include "src/optim/optimizers.h"

namespace carole::train {

// Returns the layers from the graph's input "images" to `logits`, followed by a softmax. Keras 2
// and 3 both read the result. The graph must not be fused. Dropout is included if the graph was
// built for training. Logs a line and returns nullopt if Keras has no layer for an operation (local
// response normalization).
std::optional<io::KerasModel> MakeKerasModel(const Graph& graph, ValueId logits,
                                             const std::string& name);

// Returns the training_config with which Keras continues the training: cross entropy without L2
// terms, accuracy, and the same optimizer with this learning rate and new slots. Returns "" if
// Keras does not have the optimizer.
std::string MakeKerasTrainingConfig(const optim::UpdatePlan& optimizer, double learning_rate);

}  // namespace carole::train
