#include "src/export/keras_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/core/log.h"
#include "src/export/keras_layers.h"

namespace carole::train {
namespace {

using Json = nlohmann::ordered_json;

// The order in which Keras keeps the layers of a model and expects their weights. Layers are sorted
// by the length of the longest path to the output, the longest first. Layers of equal length are
// sorted by when a depth-first search from the output first reached them; it takes inputs in order.
class KerasOrder {
 public:
  KerasOrder(const std::vector<KerasNode>& layers, int output)
      : layers_(layers), found_(layers.size(), -1), depth_(layers.size(), 0) {
    Search(output);
    // Every layer comes after its inputs. So in reverse order, all users of a layer are finished
    // before the layer itself.
    for (int i = output; i >= 0; --i) {
      const auto index = static_cast<size_t>(i);
      if (found_[index] < 0) continue;
      order_.push_back(i);
      for (int input : layers_[index].inputs) {
        int& depth = depth_[static_cast<size_t>(input)];
        depth = std::max(depth, depth_[index] + 1);
      }
    }
    std::ranges::sort(order_, [&](int a, int b) {
      const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
      return depth_[i] != depth_[j] ? depth_[i] > depth_[j] : found_[i] < found_[j];
    });
  }

  const std::vector<int>& order() const { return order_; }

 private:
  void Search(int layer) {
    const auto index = static_cast<size_t>(layer);
    if (found_[index] >= 0) return;
    found_[index] = count_++;
    for (int input : layers_[index].inputs) Search(input);
  }

  const std::vector<KerasNode>& layers_;
  std::vector<int> found_;  // when the search reached the layer; -1: not reached
  std::vector<int> depth_;  // length of the longest path to the output
  std::vector<int> order_;
  int count_ = 0;
};

Json ToJson(const KerasNode& layer, const std::vector<KerasNode>& layers) {
  Json call = Json::array();
  for (int input : layer.inputs)
    call.push_back({layers[static_cast<size_t>(input)].name, 0, 0, Json::object()});
  return {{"class_name", layer.class_name},
          {"config", layer.config},
          {"name", layer.name},
          {"inbound_nodes", call.empty() ? Json::array() : Json::array({call})}};
}

}  // namespace

std::string MakeKerasTrainingConfig(const optim::UpdatePlan& optimizer, double learning_rate) {
  if (optimizer.keras.class_name.empty()) return "";
  Json config{{"learning_rate", learning_rate}};
  for (const auto& [key, value] : optimizer.keras.config)
    std::visit([&, &name = key](auto v) { config[name] = v; }, value);
  // The name "accuracy" alone would mean accuracy for one-hot labels in Keras 2.
  const Json accuracy{{"class_name", "SparseCategoricalAccuracy"},
                      {"config", {{"name", "accuracy"}, {"dtype", "float32"}}}};
  return Json{
      {"loss", "sparse_categorical_crossentropy"},
      {"metrics", Json::array({accuracy})},
      {"weighted_metrics", nullptr},
      {"loss_weights", nullptr},
      {"optimizer_config", {{"class_name", optimizer.keras.class_name}, {"config", config}}}}
      .dump();
}

std::optional<io::KerasModel> MakeKerasModel(const Graph& graph, ValueId logits,
                                             const std::string& name) try {
  const std::vector<KerasNode> layers = ConvertToKeras(graph, logits);
  const int output = static_cast<int>(layers.size()) - 1;
  io::KerasModel model;
  Json list = Json::array();
  const KerasOrder sorted(layers, output);
  for (int i : sorted.order()) {
    const KerasNode& layer = layers[static_cast<size_t>(i)];
    list.push_back(ToJson(layer, layers));
    if (layer.has_weights) model.layers.push_back(layer.name);
  }
  const Json config{{"name", name},
                    {"layers", list},
                    {"input_layers", {{layers.front().name, 0, 0}}},
                    {"output_layers", {{layers.back().name, 0, 0}}}};
  model.config = Json{
      {"class_name", "Functional"},
      {"config", config},
      {"keras_version", io::kKerasVersion},
      {"backend",
       "tensorflow"}}.dump();
  return model;
} catch (const NoKerasLayer& missing) {
  LogInfo("keras",
          "{}: Keras has no layer for {}: checkpoints hold the weights in Keras's layout, but "
          "load_model() cannot rebuild the net",
          name, missing.operation);
  return std::nullopt;
}

}  // namespace carole::train
