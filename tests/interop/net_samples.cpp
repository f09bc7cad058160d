// Runs nets, so that check_keras.py and check_export.py can compare the results with those of other
// programs. Images, and weights that are not loaded, are computed by a formula. An image size or a
// number of classes of 0 is the net's own.
//
//   net_samples write FOLDER NET IMAGE_SIZE CLASSES       writes a checkpoint, FOLDER/NET.h5
//   net_samples load FOLDER NET IMAGE_SIZE CLASSES FILE   loads weights from FILE, prints a report
//   net_samples quantize FOLDER NET IMAGE_SIZE CLASSES [FILE]
//       writes a checkpoint of the quantized net, with the ranges in FILE, lines of NAME MIN MAX.
//       Without FILE, the ranges are those of the images.
//
// All write the images (N,H,W,C) to FOLDER/NET.images, the logits (N,K) to FOLDER/NET.logits and
// the probabilities (N,K) to FOLDER/NET.probabilities, as raw fp32. There are two images. Quantized
// nets get a third one, which is the first one rounded to bytes: (q - 128) * 2/255. The backend is
// oneDNN, that of quantized nets is the reference.
#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "io/weights/open_weights.h"
#include "io/weights/weights_mapping.h"
#include "nets/nets.h"
#include "src/backend/ops/fake_quant.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/export/keras_model.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/executable.h"
#include "src/graph/rewrites.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/state.h"
#include "tests/golden/formula.h"

namespace carole {
namespace {

constexpr int64_t kFormulaImages = 2;

struct Request {
  std::string mode, folder, net, file;
  int64_t image_size = 0, num_classes = 0;

  bool quantizes() const { return mode == "quantize"; }
};

void WriteFloats(const std::string& path, const std::vector<float>& values) {
  WriteWholeFile(path,
                 {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

class Net {
 public:
  explicit Net(const Request& request)
      : net_(request.net),
        model_(Build(request)),
        keras_(train::MakeKerasModel(*model_.graph, model_.logits, request.net)),
        backend_(OneDnnAvailable() && !request.quantizes() ? MakeOneDnnBackend(1)
                                                           : MakeReferenceBackend(2)) {
    if (request.quantizes() && request.file.empty()) MeasureRanges();
    Fuse(*model_.graph, *backend_);
    executable_ = std::make_unique<Executable>(Compile(*model_.graph, *backend_));
    store_ = executable_->MakeStore();
    executable_->Bind(*store_);
  }

  VariableStore& store() { return *store_; }

  void FillByFormula() {
    for (size_t v = 0; v < store_->variables().size(); ++v) {
      const VariableSlice& variable = store_->variables()[v];
      store_->Write(static_cast<int>(v),
                    golden::FormulaVariable(variable.name, variable.tf_shape, 1));
    }
  }

  void LoadRanges(const std::string& path) {
    std::ifstream file(path);
    std::string name;
    for (float min = 0, max = 0; file >> name >> min >> max;) {
      store_->Write(store_->Find(name + "/min"), std::vector<float>{min});
      store_->Write(store_->Find(name + "/max"), std::vector<float>{max});
    }
  }

  // Loads the weights. Prints the names of variables that the file lacks or has with another shape.
  void Load(const std::string& path) {
    const std::unique_ptr<io::WeightsSource> file = io::OpenWeights(path);
    std::vector<io::VariableSpec> wanted;
    for (const VariableSlice& variable : store_->variables())
      wanted.push_back({variable.name, variable.tf_shape});
    const io::MappedWeights mapped(*file, wanted);
    for (const std::string& line : mapped.report()) fmt::print("{}\n", line);
    for (size_t v = 0; v < wanted.size(); ++v) {
      const auto& [name, shape] = wanted[v];
      if (!mapped.Has(name) || mapped.shape(name) != shape) {
        fmt::print("missing {}\n", name);
        continue;
      }
      std::vector<float> values(static_cast<size_t>(shape.size()));
      mapped.Read(name, values);
      store_->Write(static_cast<int>(v), values);
    }
  }

  void WriteCheckpoint(const std::string& path) {
    io::Checkpoint checkpoint{.step = 1, .keras = keras_};
    const Shape images = model_.graph->shape(model_.graph->input("images"));
    checkpoint.attributes = {
        {train::kNet, net_},
        {train::kImageSize, std::to_string(images[2])},
        {train::kChannels, std::to_string(images[1])},
        {train::kNumClasses, std::to_string(model_.graph->shape(model_.logits)[1])}};
    std::string names;
    for (int64_t k = 0; k < model_.graph->shape(model_.logits)[1]; ++k)
      names += fmt::format("class \"{}\" \\ \u00e9\n", k);
    checkpoint.attributes[train::kClassNames] = names;
    if (keras_) {
      checkpoint.keras->training_config = train::MakeKerasTrainingConfig(
          optim::FindOptimizer("adam").plan({.opt_epsilon = 1e-7}), 0.5);
    }
    for (size_t v = 0; v < store_->variables().size(); ++v) {
      const VariableSlice& variable = store_->variables()[v];
      std::vector<float> data(static_cast<size_t>(variable.tf_shape.size()));
      store_->Read(static_cast<int>(v), data);
      checkpoint.variables.push_back({.name = variable.name,
                                      .shape = variable.tf_shape,
                                      .data = std::move(data),
                                      .trainable = variable.trainable});
    }
    io::WriteCheckpoint(checkpoint, path);
  }

  void WritePredictions(const std::string& prefix) {
    const Tensor images = executable_->Input("images");
    const std::vector<float> pixels = MakeImages(images.shape);
    std::copy(pixels.begin(), pixels.end(), images.as<float>());
    executable_->Run({});
    WriteFloats(prefix + ".images", pixels);
    for (const auto& [ending, value] :
         {std::pair(".logits", model_.logits), std::pair(".probabilities", model_.predictions)}) {
      const std::vector<double> found = executable_->Output(value);
      WriteFloats(prefix + ending, {found.begin(), found.end()});
    }
  }

 private:
  static nets::Model Build(const Request& request) {
    nets::ModelOptions options{.batch_size = kFormulaImages,
                               .image_size = request.image_size,
                               .num_classes = request.num_classes};
    if (request.quantizes()) {
      ++options.batch_size;
      options.quantization = nets::QuantizationOptions();
    }
    return nets::BuildModel(nets::FindNet(request.net), options);
  }

  // Makes each range that of its tensor.
  void MeasureRanges() {
    for (Node& node : model_.graph->mutable_nodes()) {
      if (auto* quant = node.attributes.get_if<FakeQuantAttributes>())
        quant->range = FakeQuantAttributes::Range::kLatest;
    }
  }

  static std::vector<float> MakeImages(const Shape& shape) {
    std::vector<float> pixels = golden::FormulaInput("input", shape.size());
    const size_t image = pixels.size() / static_cast<size_t>(shape[0]);
    for (size_t i = kFormulaImages * image; i < pixels.size(); ++i) {
      const double u = pixels[i - kFormulaImages * image];
      pixels[i] = static_cast<float>((std::floor((u + 1) * 127.5 + 0.5) - 128) * 2 / 255);
    }
    return pixels;
  }

  const std::string net_;
  nets::Model model_;
  const std::optional<io::KerasModel> keras_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> store_;
};

int Run(const Request& request) {
  Net net(request);
  const std::string prefix = request.folder + "/" + request.net;
  if (request.mode == "load") {
    net.Load(request.file);
  } else {
    net.FillByFormula();
    if (request.quantizes() && !request.file.empty()) net.LoadRanges(request.file);
  }
  net.WritePredictions(prefix);
  if (request.mode != "load") net.WriteCheckpoint(prefix + ".h5");
  return 0;
}

}  // namespace
}  // namespace carole

int main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr,
               "usage: net_samples write|load|quantize FOLDER NET IMAGE_SIZE CLASSES [FILE]\n");
    return 64;
  }
  try {
    return carole::Run({.mode = argv[1],
                        .folder = argv[2],
                        .net = argv[3],
                        .file = argc > 6 ? argv[6] : "",
                        .image_size = std::stoll(argv[4]),
                        .num_classes = std::stoll(argv[5])});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
