// Runs nets, so that check_keras.py and check_export.py can compare the results with those of other
// programs. Images, and weights that are not loaded, are computed by a formula. An image size or a
// number of classes of 0 is the net's own.
//
//   net_samples write FOLDER NET IMAGE_SIZE CLASSES       writes a checkpoint, FOLDER/NET.h5
//   net_samples load FOLDER NET IMAGE_SIZE CLASSES FILE   loads weights from FILE, prints a report
//
// Both write the images (N,H,W,C) to FOLDER/NET.images, the logits (N,K) to FOLDER/NET.logits and
// the probabilities (N,K) to FOLDER/NET.probabilities, as raw fp32.
#include <fmt/format.h>

#include <exception>
#include <string>
#include <vector>

#include "io/weights/open_weights.h"
#include "io/weights/weights_mapping.h"
#include "nets/nets.h"
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

constexpr int64_t kBatch = 2;

struct Request {
  std::string mode, folder, net, file;
  int64_t image_size = 0, num_classes = 0;
};

void WriteFloats(const std::string& path, const std::vector<float>& values) {
  WriteWholeFile(path,
                 {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

class Net {
 public:
  explicit Net(const Request& request)
      : net_(request.net),
        model_(nets::BuildModel(nets::FindNet(request.net), {.batch_size = kBatch,
                                                             .image_size = request.image_size,
                                                             .num_classes = request.num_classes})),
        keras_(train::MakeKerasModel(*model_.graph, model_.logits, request.net)),
        backend_(OneDnnAvailable() ? MakeOneDnnBackend(1) : MakeReferenceBackend(1)) {
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
    const std::vector<float> pixels = golden::FormulaInput("input", images.size());
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
    net.WriteCheckpoint(prefix + ".h5");
  }
  net.WritePredictions(prefix);
  return 0;
}

}  // namespace
}  // namespace carole

int main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr, "usage: net_samples write|load FOLDER NET IMAGE_SIZE CLASSES [FILE]\n");
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
