// Finds the weights of a file under the names of a net's variables if the file uses other names. It
// knows the names of Keras layers, of keras.applications, and of TensorFlow 2's ImageNet ResNet and
// MNIST nets. The net may be a model inside of another model in the file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/weights_source.h"

namespace carole::io {

// A WeightsSource on top of another one. Wanted names that the file has stay as they are. The
// others are searched by the rules of weights_mapping.cpp. Their slots and moving averages are
// found too.
class MappedWeights final : public WeightsSource {
 public:
  // `file` must outlive this object.
  MappedWeights(const WeightsSource& file, std::span<const VariableSpec> wanted);

  // How the elements change when they are read, because the other net computes the same in another
  // way.
  struct Conversion {
    std::string subtracted_bias;     // name of a tensor to subtract; "": none
    bool reverses_channels = false;  // of a filter that reads BGR images
  };

  // Lines for the log: how many names each rule found, and how their weights are converted.
  const std::vector<std::string>& report() const { return report_; }

  const std::string& path() const override { return file_.path(); }
  const std::vector<std::string>& names() const override { return names_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape; }
  std::string type(const std::string& name) const override {
    return file_.type(tensors_.at(name).name);
  }
  void Read(const std::string& name, std::span<float> out) const override;
  std::optional<int64_t> step() const override { return file_.step(); }
  const std::vector<std::string>& other_tensors() const override { return file_.other_tensors(); }
  // Empty if all wanted variables were found.
  const std::string& misfit_hint() const override { return misfit_hint_; }

 private:
  struct MappedTensor {
    std::string name;  // in the file
    Shape shape;       // the wanted one: the file may have a dense layer for a convolution
    Conversion conversion;
  };

  void AddTensors();
  // Adds a name to by_layer_.
  void AddToLayers(const std::string& name);
  // Sets model_.
  void FindModel(std::span<const VariableSpec> wanted);
  // Returns the name of the tensor for a candidate "LAYER/WEIGHT", or "" if the file has none or
  // several in different models.
  std::string FindInFile(const std::string& candidate);
  // Maps the layers of a file that has no names of layers, or nothing.
  void MapNumberedLayers(std::span<const VariableSpec> wanted,
                         const std::vector<std::string>& variables);
  void ExplainMisfit();
  // `used_name` is a key of tensors_.
  void Map(const VariableSpec& wanted, const std::string& used_name, const Conversion& conversion);
  // Makes tensor `name` of the file available as `mapped`.
  void RenameTensor(const std::string& name, const std::string& mapped, const Shape& wanted,
                    bool reverses_channels);
  // The same for an object of TensorFlow 2, if the file has it.
  void MapObject(const std::string& object, const std::string& mapped, const Shape& wanted);
  // For a filter that was found by its order, which does not tell whether it reads BGR images.
  void ReportUnknownChannelOrder(const std::string& variable);
  // Maps the layers of an object-based checkpoint and its Adam.
  void MapObjects(std::span<const VariableSpec> wanted, const std::vector<std::string>& variables);

  const WeightsSource& file_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, MappedTensor> tensors_;
  std::unordered_map<std::string, std::string> used_names_;  // name in the file -> name in names_
  // For "LAYER/WEIGHT", the names that end with WEIGHT and have the component LAYER before that.
  std::unordered_map<std::string, std::vector<std::string>> by_layer_;
  // The scope that has the most names for wanted variables: "" or "mobilenet/"; none if two have as
  // many.
  std::optional<std::string> model_;
  std::vector<std::string> ambiguous_;  // "left/conv1/kernel, right/conv1/kernel"
  std::vector<std::string> report_;
  std::string misfit_hint_;
};

// Removes the scope "resnet/". The ImageNet ResNet of TensorFlow 1.4 has that scope, that of
// TensorFlow 2 has not.
std::string WithoutResNetScope(const std::string& name);

}  // namespace carole::io
