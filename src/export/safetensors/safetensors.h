// Weights in the format of safetensors: a header in JSON, then the values. This is the only header
// of the room src/export/safetensors.
#pragma once

#include <filesystem>

#include "src/export/common/exported_net.h"

namespace carole::exporting {

// Writes all variables of the net as fp32 with their names, shapes and order of elements in
// TensorFlow. The metadata of the net become the header's "__metadata__". Holds one variable at a
// time in memory. The file appears atomically.
// Source: https://huggingface.co/docs/safetensors, "Format". Throws DiskError, and what net.read
// throws.
void WriteSafetensors(const ExportedNet& net, const std::filesystem::path& path);

}  // namespace carole::exporting
