// Decodes and preprocesses an encoded image inside of a TensorFlow graph. Private to this room.
#pragma once

#include <string>

#include "src/export/common/preprocessing_steps.h"
#include "src/export/tensorflow/tf_graph.h"

namespace carole::exporting {

// Returns the function from the bytes of one JPEG or PNG file to fp32 (size,size,C).
TfFunction MakePreprocessingFunction(const PreprocessingSteps& steps,
                                     const std::string& dct_method);

}  // namespace carole::exporting
