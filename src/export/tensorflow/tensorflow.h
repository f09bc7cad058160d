// Writes nets as graphs of TensorFlow. This is the first header of the room src/export/tensorflow.
//
//   tf_graph.h       nodes and their encodings
//   tf_nodes.h       the operations of carole as nodes of TensorFlow
//   output_names.h   the names of logits and predictions in TF-Slim
//   preprocessing_function.h   the preprocessing of encoded images
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/export/common/exported_net.h"
#include "src/export/common/preprocessing_steps.h"

namespace carole::exporting {

struct GraphDefOptions {
  int64_t batch_size = 0;  // 0: any
  bool freeze = false;     // weights are constants; if not, they are variables without values
  bool as_text = false;
};

// Writes a GraphDef, as TF-Slim's export_inference_graph and TensorFlow's freeze_graph do. The
// input is the placeholder "input" (N,H,W,C) fp32. Variables have their own names, so that
// freeze_graph finds them in a checkpoint. Logits and predictions have the names of
// TF-Slim (OutputNamesOf()).
//
// At most one variable is in memory. The file appears atomically. Throws UsageError if an operation
// has no form in TensorFlow or the file would exceed 2 GB, DiskError, and what net.read throws.
void WriteGraphDef(const ExportedNet& net, const GraphDefOptions& options,
                   const std::filesystem::path& path);

struct SavedModelOptions {
  // If set, the input "image_bytes" has encoded images (N) of type string, JPEG or PNG. The graph
  // decodes and preprocesses them.
  std::optional<PreprocessingSteps> preprocessing;
  std::string dct_method;  // TensorFlow's name of the DCT that decodes JPEGs
};

// Writes a SavedModel into the folder, with the signature "serving_default". Its input is "input"
// (N,H,W,C) fp32 or "image_bytes", its outputs are "logits" and "predictions" (N,K). The weights
// are constants. Throws the same errors as above.
void WriteSavedModel(const ExportedNet& net, const SavedModelOptions& options,
                     const std::filesystem::path& folder);

}  // namespace carole::exporting
