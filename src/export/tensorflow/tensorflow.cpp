#include "src/export/tensorflow/tensorflow.h"

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/export/tensorflow/output_names.h"
#include "src/export/tensorflow/preprocessing_function.h"
#include "src/export/tensorflow/tf_graph.h"
#include "src/export/tensorflow/tf_nodes.h"

namespace carole::exporting {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInput = "input";
constexpr const char* kImageBytes = "image_bytes";

// One message of Protocol Buffers has at most 2 GB.
void RequireSmall(const ExportedNet& net, uint64_t bytes, const std::string& remedy) {
  if (bytes <= kMaxProtoBytes) return;
  throw UsageError(
      fmt::format("[export] {}: too large for one file of TensorFlow: got {:.2f} GB, "
                  "want at most 2.14 GB; {}",
                  net.name, static_cast<double>(bytes) * 1e-9, remedy));
}

// Adds the placeholder "input" (N,H,W,C).
std::string AddInput(const ExportedNet& net, int64_t batch_size, TfGraph& graph) {
  const Shape& s = net.graph.shape(net.graph.input("images"));
  return graph.Add(
      "Placeholder", kInput, {},
      {{"dtype", TfType::kFloat},
       {"shape", TfShape{{batch_size > 0 ? batch_size : int64_t{-1}, s[2], s[3], s[1]}}}});
}

// Adds the placeholder for encoded images and the nodes that preprocess each of them.
std::string AddEncodedInput(const PreprocessingSteps& steps, const TfFunction& function,
                            TfGraph& graph) {
  const std::string images = graph.Add("Placeholder", kImageBytes, {},
                                       {{"dtype", TfType::kString}, {"shape", TfShape{{-1}}}});
  return graph.Add(
      "MapDefun", "preprocessing", {images},
      {{"Targuments", std::vector{TfType::kString}},
       {"Tcaptured", std::vector<TfType>()},
       {"output_types", std::vector{TfType::kFloat}},
       {"output_shapes", std::vector{TfShape{{steps.size, steps.size, steps.net_channels}}}},
       {"f", TfFunctionName{function.name}}});
}

// TensorInfo{name, dtype, tensor_shape}, as an entry of a map.
ProtoMessage TensorInfo(const std::string& key, const std::string& node, TfType type,
                        const std::vector<int64_t>& dims) {
  ProtoMessage info, entry;
  info.AddBytes(1, node + ":0");
  info.AddInteger(2, static_cast<uint64_t>(type));
  info.AddMessage(3, EncodeShape(dims));
  entry.AddBytes(1, key);
  entry.AddMessage(2, std::move(info));
  return entry;
}

// SignatureDef{inputs, outputs, method_name}, as an entry of a map.
ProtoMessage ServingSignature(const ExportedNet& net, bool is_encoded, const OutputNames& outputs) {
  const Shape& s = net.graph.shape(net.graph.input("images"));
  const int64_t classes = net.graph.shape(net.logits)[1];
  ProtoMessage signature, entry;
  signature.AddMessage(1, is_encoded
                              ? TensorInfo(kImageBytes, kImageBytes, TfType::kString, {-1})
                              : TensorInfo(kInput, kInput, TfType::kFloat, {-1, s[2], s[3], s[1]}));
  signature.AddMessage(2, TensorInfo("logits", outputs.logits, TfType::kFloat, {-1, classes}));
  signature.AddMessage(
      2, TensorInfo("predictions", outputs.predictions, TfType::kFloat, {-1, classes}));
  signature.AddBytes(3, "tensorflow/serving/predict");
  entry.AddBytes(1, "serving_default");
  entry.AddMessage(2, std::move(signature));
  return entry;
}

// SavedModel{saved_model_schema_version, MetaGraphDef{MetaInfoDef{tags, tensorflow_version},
// graph_def, signature_def}}
ProtoMessage EncodeSavedModel(ProtoMessage graph, ProtoMessage signature) {
  ProtoMessage info, meta_graph, message;
  info.AddBytes(4, "serve");
  info.AddBytes(5, "1.15.0");
  meta_graph.AddMessage(1, std::move(info));
  meta_graph.AddMessage(2, std::move(graph));
  meta_graph.AddMessage(5, std::move(signature));
  message.AddInteger(1, 1);
  message.AddMessage(2, std::move(meta_graph));
  return message;
}

}  // namespace

void WriteGraphDef(const ExportedNet& net, const GraphDefOptions& options, const fs::path& path) {
  TfGraph graph;
  const std::string input = AddInput(net, options.batch_size, graph);
  AddNetNodes(net, input, options.freeze, OutputNamesOf(net.name), graph);
  const ProtoMessage message = EncodeGraph(graph);
  RequireSmall(
      net, message.size(),
      fmt::format("leave {} out, or choose {}", Option("freeze"), Option("format", "onnx")));
  const std::unique_ptr<Sink> file = CreateFile(path);
  options.as_text ? WriteGraphText(graph, *file) : message.WriteTo(*file);
  file->Commit();
}

void WriteSavedModel(const ExportedNet& net, const SavedModelOptions& options,
                     const fs::path& folder) {
  TfGraph graph;
  std::vector<TfFunction> functions;
  std::string input;
  if (options.preprocessing) {
    functions.push_back(MakePreprocessingFunction(*options.preprocessing, options.dct_method));
    input = AddEncodedInput(*options.preprocessing, functions.back(), graph);
  } else {
    input = AddInput(net, 0, graph);
  }
  const OutputNames outputs = OutputNamesOf(net.name);
  AddNetNodes(net, input, true, outputs, graph);
  const ProtoMessage message =
      EncodeSavedModel(EncodeGraph(graph, functions),
                       ServingSignature(net, options.preprocessing.has_value(), outputs));
  RequireSmall(net, message.size(), "choose " + Option("format", "onnx"));
  MakeFolder("export", folder);
  const std::unique_ptr<Sink> file = CreateFile(folder / "saved_model.pb");
  message.WriteTo(*file);
  file->Commit();
}

}  // namespace carole::exporting
