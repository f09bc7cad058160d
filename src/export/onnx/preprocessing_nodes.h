// Preprocesses images inside of an ONNX graph. Private to this room.
#pragma once

#include <string>

#include "src/export/common/preprocessing_steps.h"
#include "src/export/onnx/onnx_graph.h"

namespace carole::exporting {

// Appends the steps for the bytes `image` (N,height,width,C). Returns the name of the result, fp32
// (N,C,size,size).
std::string AddPreprocessing(const PreprocessingSteps& steps, const std::string& image,
                             OnnxGraph& graph);

}  // namespace carole::exporting
