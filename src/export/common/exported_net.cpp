#include "src/export/common/exported_net.h"

#include "src/core/files/bytes.h"
#include "src/core/files/crc32c.h"

namespace carole::exporting {

uint64_t WeightBytes(const Graph& graph) {
  uint64_t bytes = 0;
  for (const Variable& v : graph.variables())
    bytes += static_cast<uint64_t>(v.tf_shape.size()) * sizeof(float);
  return bytes;
}

uint32_t WeightsDigest(const ExportedNet& net) {
  std::string checksums;
  for (const Variable& v : net.graph.variables())
    AppendLittleEndian(checksums, Crc32c(BytesOf(net.read(v))));
  return Crc32c(checksums);
}

std::string_view BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace carole::exporting
