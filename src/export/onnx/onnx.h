// Writes nets in the format ONNX (https://onnx.ai), which most inference runtimes read. This is the
// first header of the room src/export/onnx.
//
//   onnx_graph.h          nodes, constants and weights in ONNX's encoding
//   convert_nodes.h       the operations of carole as nodes of ONNX
//   onnx_weights.h        the values of variables and of quantized weights
//   preprocessing_nodes.h   the preprocessing of images
#pragma once

#include <filesystem>
#include <optional>

#include "src/export/common/exported_net.h"
#include "src/export/common/preprocessing_steps.h"

namespace carole::exporting {

// The operator sets that can be written. ONNX Runtime reads 17 from version 1.12 on.
inline constexpr int kMinOpset = 17, kMaxOpset = 22;

struct OnnxOptions {
  int opset = kMinOpset;
  bool channels_last = false;     // the input is (N,H,W,C) instead of (N,C,H,W)
  bool external_weights = false;  // weights are in a second file; always so above 2 GB
  // If set, the input "image" has bytes (N,height,width,C) of any height and width, and the graph
  // preprocesses them.
  std::optional<PreprocessingSteps> preprocessing;
};

// Writes the net to `path`. The batch has any size. The input is "input" (fp32, preprocessed)
// or "image". The outputs are "logits" and "predictions", (N,K).
//
// A second file with the weights is called PATH.DIGEST.data with the checksum of the weights. So a
// model never reads the weights of another one. The second file is written first. Files of earlier
// models with such a name are removed at the end.
//
// Memory holds at most two copies of one variable. Files appear atomically. Throws UsageError if an
// operation has no form in ONNX, DiskError, and what net.read throws.
void WriteOnnx(const ExportedNet& net, const OnnxOptions& options,
               const std::filesystem::path& path);

}  // namespace carole::exporting
