// Doubles for golden files that have fp32 values only, because the net was too large for TensorFlow
// in double. Doubles of our own show which differences are rounding errors.
#include <cmath>
#include <fstream>
#include <string>

#include "tests/golden/check_net.h"
#include "tests/golden/session.h"

namespace carole::golden {

using nlohmann::json;

bool HasDoubles(const json& golden) { return golden["eval"].contains("logits_f64"); }

void UseFp32AsDoubles(json& value) {
  json doubles = json::object();
  for (auto& [key, part] : value.items()) {
    if (part.is_structured()) UseFp32AsDoubles(part);
    if (value.is_object() && key.ends_with("f32")) {
      doubles[key.substr(0, key.size() - 3) + "f64"] = part;
    } else if (value.is_object() && key == "samples") {
      for (json& sample : part) sample[1] = sample[2];  // index, f64, f32
    }
  }
  if (!doubles.empty()) value.update(doubles);
}

void AddOwnDoubles(json& golden, const std::filesystem::path& folder) {
  std::ifstream file(folder / (golden["net"].get<std::string>() + ".json"));
  if (!file) return;
  const json own = json::parse(file)["train"];
  json& train = golden["train"];
  train["logits_f64"] = own["logits_f64"];
  train["loss"]["xent"]["f64"] = own["xent_f64"];
  for (json& gradient : train["grads"])
    gradient["l2_f64"] = own["gradient_norms_f64"][gradient["name"].get<std::string>()];
  train["own_doubles"] = true;
}

void RecordDoubles(const nets::NetEntry& net, const json& golden, const Backend& reference,
                   const std::filesystem::path& folder) {
  const json& input = golden["input"]["shape"];
  nets::Model model = nets::BuildModel(net, {.batch_size = input[0],
                                             .image_size = input[1],
                                             .channels = input[3],
                                             .num_classes = golden["num_classes"],
                                             .training = true,
                                             .dropout = false,
                                             .label_smoothing = golden["label_smoothing"],
                                             .compute = DType::kF64});
  const auto values = FormulaVariables(*model.graph, golden);
  Session session(std::move(model), true, reference, values);
  session.Run(golden["labels"].get<std::vector<int32_t>>());
  const Graph& graph = session.graph();
  nlohmann::ordered_json train;
  train["xent_f64"] = session.Output(graph.losses().back().second)[0];
  const std::vector<double> logits = session.Output(session.model().logits);
  const auto middle = logits.begin() + graph.shape(session.model().logits)[1];
  train["logits_f64"] = {std::vector(logits.begin(), middle), std::vector(middle, logits.end())};
  for (size_t v = 0; v < values.size(); ++v) {
    const Variable& variable = graph.variables()[v];
    if (!variable.trainable) continue;
    std::vector<double> gradient = session.Gradient(v);
    const double decay = variable.l2_regularized ? golden["weight_decay"].get<double>() : 0;
    double squares = 0;
    for (size_t i = 0; i < gradient.size(); ++i)
      squares += std::pow(gradient[i] + decay * values[v][i], 2);
    train["gradient_norms_f64"][variable.name] = std::sqrt(squares);
  }
  nlohmann::ordered_json file;
  file["net"] = net.name;
  file["reference"] = "carole, reference backend in double";
  file["train"] = train;
  std::ofstream(folder / (std::string(net.name) + ".json")) << file.dump(1) << "\n";
}

}  // namespace carole::golden
