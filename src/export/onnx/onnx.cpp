#include "src/export/onnx/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "src/core/check.h"
#include "src/core/files/bytes.h"
#include "src/core/log.h"
#include "src/export/onnx/convert_nodes.h"
#include "src/export/onnx/preprocessing_nodes.h"

namespace carole::exporting {
namespace {

namespace fs = std::filesystem;

// Fields of ModelProto and OperatorSetIdProto.
namespace model {
constexpr int kIrVersion = 1, kProducer = 2, kGraph = 7, kOperatorSet = 8, kMetadata = 14;
constexpr int kOperatorSetVersion = 2;
}  // namespace model

// Weights of this size are in a second file. The graph itself needs less than the rest.
constexpr uint64_t kMaxInlineBytes = kMaxProtoBytes - (uint64_t{64} << 20);

// The version of the file format that came with an operator set.
uint64_t IrVersionOf(int opset) { return opset >= 21 ? 10 : opset >= 19 ? 9 : 8; }

constexpr std::string_view kDataEnding = ".data";

fs::path DataPath(const fs::path& path, uint32_t digest) {
  return fmt::format("{}.{:08x}{}", path.string(), digest, kDataEnding);
}

// Whether a file of the same folder has a name that DataPath() gives.
bool IsDataFile(const fs::path& model, const std::string& name) {
  const std::string begin = model.filename().string() + ".";
  constexpr size_t kDigits = 8;
  if (!name.starts_with(begin) || !name.ends_with(kDataEnding) ||
      name.size() != begin.size() + kDigits + kDataEnding.size())
    return false;
  const std::string digest = name.substr(begin.size(), kDigits);
  return digest.find_first_not_of("0123456789abcdef") == digest.npos;
}

void RemoveOtherDataFiles(const fs::path& model, const fs::path& used) {
  const fs::path folder = model.parent_path().empty() ? "." : model.parent_path();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    if (path.filename() == used.filename() || !IsDataFile(model, path.filename())) continue;
    LogInfo("export", "{}: removed: it holds the weights of an earlier model", path.string());
    fs::remove(path, error);
  }
}

class Writer {
 public:
  Writer(const ExportedNet& net, const OnnxOptions& options, const fs::path& path)
      : net_(net),
        options_(options),
        path_(path),
        digest_(WeightsDigest(net)),
        is_external_(options.external_weights || WeightBytes(net.graph) > kMaxInlineBytes) {}

  void Write() {
    if (is_external_) data_ = CreateFile(DataPath(path_, digest_));
    const ProtoMessage message = MakeModel();
    CAROLE_CHECK(message.size() <= kMaxProtoBytes, "{}: {} bytes without weights", path_.string(),
                 message.size());
    if (data_) data_->Commit();
    const std::unique_ptr<Sink> file = CreateFile(path_);
    message.WriteTo(*file);
    file->Commit();
    RemoveOtherDataFiles(path_, is_external_ ? DataPath(path_, digest_) : "");
  }

 private:
  ProtoMessage MakeModel() {
    ProtoMessage message, operators;
    message.AddInteger(model::kIrVersion, IrVersionOf(options_.opset));
    message.AddBytes(model::kProducer, "carole");
    operators.AddInteger(model::kOperatorSetVersion, static_cast<uint64_t>(options_.opset));
    message.AddMessage(model::kOperatorSet, std::move(operators));
    for (const auto& [key, value] : net_.metadata)
      AddOnnxEntry(message, model::kMetadata, key, value);
    AddOnnxEntry(message, model::kMetadata, "weights_digest", fmt::format("{:08x}", digest_));
    message.AddMessage(model::kGraph, MakeGraph());
    return message;
  }

  ProtoMessage MakeGraph() {
    OnnxGraph graph;
    const auto add_weights = [&](const OnnxWeights& weights) {
      is_external_ ? AddExternal(weights, graph) : graph.AddWeights(weights);
    };
    const auto names = ConvertNodes(net_, AddInput(graph), add_weights, graph);
    const int64_t classes = net_.graph.shape(net_.logits)[1];
    for (const auto& [name, value] :
         {std::pair("logits", net_.logits), std::pair("predictions", net_.predictions)}) {
      const std::string output = graph.Add("Identity", name, {names.at(value)});
      CAROLE_CHECK_EQ(output, std::string(name), "name of an output");
      graph.AddOutput(name, {"batch", classes});
    }
    return graph.Take(net_.name);
  }

  void AddExternal(const OnnxWeights& weights, OnnxGraph& graph) {
    // Numbers begin at multiples of their size, so that they can be mapped into memory.
    const uint64_t gap = (sizeof(float) - data_bytes_ % sizeof(float)) % sizeof(float);
    data_->Append(std::string(gap, '\0'));
    data_bytes_ += gap;
    graph.AddExternalWeights(weights, DataPath(path_, digest_).filename(), data_bytes_);
    weights.produce(*data_);
    data_bytes_ += weights.bytes();
  }

  // Adds the input and returns the name of the tensor (N,C,H,W).
  std::string AddInput(OnnxGraph& graph) const {
    if (options_.preprocessing) {
      const PreprocessingSteps& steps = *options_.preprocessing;
      OnnxGraph::Dims dims{"batch", "height", "width", steps.image_channels};
      if (steps.geometry == Geometry::kAsItIs) dims[1] = dims[2] = steps.size;
      graph.AddInput("image", OnnxType::kUint8, dims);
      return AddPreprocessing(steps, "image", graph);
    }
    const Shape& s = net_.graph.shape(net_.graph.input("images"));
    if (!options_.channels_last) {
      graph.AddInput("input", OnnxType::kFloat, {"batch", s[1], s[2], s[3]});
      return "input";
    }
    graph.AddInput("input", OnnxType::kFloat, {"batch", s[2], s[3], s[1]});
    return graph.Add("Transpose", "channels_first", {"input"},
                     {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
  }

  const ExportedNet& net_;
  const OnnxOptions& options_;
  const fs::path& path_;
  const uint32_t digest_;
  const bool is_external_;
  std::unique_ptr<Sink> data_;
  uint64_t data_bytes_ = 0;
};

}  // namespace

void WriteOnnx(const ExportedNet& net, const OnnxOptions& options, const fs::path& path) {
  Writer(net, options, path).Write();
}

}  // namespace carole::exporting
