#include "src/export/safetensors/safetensors.h"

#include <nlohmann/json.hpp>

#include "src/core/files/bytes.h"

namespace carole::exporting {
namespace {

// Values begin at a multiple of this many bytes, so that they can be mapped into memory.
constexpr size_t kAlignment = 8;

}  // namespace

void WriteSafetensors(const ExportedNet& net, const std::filesystem::path& path) {
  nlohmann::ordered_json header{{"__metadata__", net.metadata}};
  uint64_t begin = 0;
  for (const Variable& v : net.graph.variables()) {
    const auto dims = v.tf_shape.dims();
    const uint64_t end = begin + static_cast<uint64_t>(v.tf_shape.size()) * sizeof(float);
    header[v.name] = {{"dtype", "F32"},
                      {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                      {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string length;
  AppendLittleEndian(length, uint64_t{text.size()});
  const std::unique_ptr<Sink> file = CreateFile(path);
  file->Append(length);
  file->Append(text);
  for (const Variable& v : net.graph.variables()) file->Append(BytesOf(net.read(v)));
  file->Commit();
}

}  // namespace carole::exporting
