// Converts the operations of a net to nodes of TensorFlow. Private to this room.
#pragma once

#include <string>

#include "src/export/common/exported_net.h"
#include "src/export/tensorflow/output_names.h"
#include "src/export/tensorflow/tf_graph.h"

namespace carole::exporting {

// Appends the nodes for the net's logits and predictions, called `outputs`. `images` is the name of
// the tensor (N,H,W,C) that the net reads. `freeze`: see GraphDefOptions. `net` must outlive the
// graph. Throws UsageError if an operation has no form in TensorFlow.
void AddNetNodes(const ExportedNet& net, const std::string& images, bool freeze,
                 const OutputNames& outputs, TfGraph& graph);

}  // namespace carole::exporting
