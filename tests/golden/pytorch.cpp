#include "tests/golden/pytorch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "src/core/hash.h"
#include "tests/golden/formula.h"

namespace carole::golden {
namespace {

using nlohmann::json;

// The last part of a name in PyTorch and here.
struct Leaf {
  const char *pytorch, *ours;
};
constexpr Leaf kNorm[] = {{"weight", "gamma"},
                          {"bias", "beta"},
                          {"running_mean", "moving_mean"},
                          {"running_var", "moving_variance"}};
constexpr Leaf kLayer[] = {{"weight", "weights"}, {"bias", "biases"}};

std::string Replace(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

// The shape in PyTorch: the last dimension comes first, then the one before it, then the pixels.
std::vector<int64_t> PyTorchShape(const Shape& tf) {
  if (tf.rank() == 4) return {tf[3], tf[2], tf[0], tf[1]};
  if (tf.rank() == 2) return {tf[1], tf[0]};
  return {tf.dims().begin(), tf.dims().end()};
}

// Returns, for each element in TensorFlow's order, its position in PyTorch's.
std::vector<size_t> Positions(const Shape& tf) {
  std::vector<size_t> positions(static_cast<size_t>(tf.size()));
  const int64_t outputs = tf.rank() > 1 ? tf[tf.rank() - 1] : 1;
  const int64_t inputs = tf.rank() > 1 ? tf[tf.rank() - 2] : tf.size();
  const int64_t pixels = tf.size() / (outputs * inputs);
  size_t i = 0;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t c = 0; c < inputs; ++c) {
      for (int64_t k = 0; k < outputs; ++k)
        positions[i++] = static_cast<size_t>((k * inputs + c) * pixels + pixel);
    }
  }
  return positions;
}

Shape OurShape(const std::vector<int64_t>& dims) {
  if (dims.size() == 4) return {dims[2], dims[3], dims[1], dims[0]};
  if (dims.size() == 2) return {dims[1], dims[0]};
  return Shape(dims);
}

}  // namespace

bool IsPyTorch(const json& golden) {
  return golden["reference"].get<std::string>().find("torch ") != std::string::npos;
}

std::string PyTorchName(const std::string& name) {
  const size_t slash = name.rfind('/');
  const std::string leaf = name.substr(slash + 1);
  std::string translated = leaf;
  for (const Leaf& l : kNorm) {
    if (leaf == l.ours) translated = l.pytorch;
  }
  for (const Leaf& l : kLayer) {
    if (leaf == l.ours) translated = l.pytorch;
  }
  return Replace(name.substr(0, slash + 1), '/', '.') + translated;
}

void TranslatePyTorch(json& golden) {
  if (!IsPyTorch(golden)) return;
  std::map<std::string, std::string> names;
  std::map<std::string, Shape> shapes;
  std::map<std::string, bool> is_norm;  // by the layer's name
  const auto layer_of = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  for (const json& v : golden["variables"]) {
    const std::string name = v["name"];
    if (name.ends_with(".running_mean")) is_norm[layer_of(name)] = true;
  }
  for (json& v : golden["variables"]) {
    const std::string name = v["name"], layer = layer_of(name),
                      leaf = name.substr(layer.size() + 1);
    std::string ours = leaf;
    for (const Leaf& l : is_norm[layer] ? std::span<const Leaf>(kNorm) : std::span(kLayer)) {
      if (leaf == l.pytorch) ours = l.ours;
    }
    names[name] = Replace(layer, '.', '/') + "/" + ours;
    shapes[name] = OurShape(v["shape"]);
    v["name"] = names[name];
    const auto dims = shapes[name].dims();
    v["shape"] = std::vector<int64_t>(dims.begin(), dims.end());
  }
  for (json& gradient : golden["train"]["grads"]) {
    const std::string name = gradient["name"];
    const std::vector<size_t> positions = Positions(shapes[name]);
    for (json& sample : gradient["samples"]) {
      sample[0] = std::find(positions.begin(), positions.end(), sample[0].get<size_t>()) -
                  positions.begin();
    }
    gradient["name"] = names[name];
  }
  for (json& statistic : golden["train"]["bn_after_one_step"])
    statistic["name"] = names[statistic["name"]];
  for (json& end_point : golden["eval"]["end_points"])
    end_point["name"] = Replace(end_point["name"], '.', '/');
}

std::vector<float> InPyTorchOrder(const std::vector<float>& values, const Shape& tf_shape) {
  const std::vector<size_t> positions = Positions(tf_shape);
  std::vector<float> ordered(values.size());
  for (size_t i = 0; i < values.size(); ++i) ordered[positions[i]] = values[i];
  return ordered;
}

std::vector<float> PyTorchFormula(const std::string& name, const Shape& tf_shape,
                                  double kernel_scale) {
  const std::string pytorch = PyTorchName(name), leaf = pytorch.substr(pytorch.rfind('.') + 1);
  const std::vector<int64_t> dims = PyTorchShape(tf_shape);
  double factor = 0.1, offset = 0;
  const bool is_filter = leaf == "weight" && dims.size() > 1;
  if (is_filter)
    factor = std::sqrt(6.0 / static_cast<double>(tf_shape.size() / dims[0])) * kernel_scale;
  if (leaf == "weight" && !is_filter) offset = 1;
  const bool is_variance = leaf == "running_var";
  if (is_variance) offset = 1, factor = 0.5;
  const uint64_t hash = Fnv1a64(pytorch);
  std::vector<float> values;
  for (const size_t position : Positions(tf_shape)) {
    const double u = Uniform(hash, position);
    values.push_back(static_cast<float>(offset + (is_variance ? std::abs(u) : u) * factor));
  }
  return values;
}

}  // namespace carole::golden
