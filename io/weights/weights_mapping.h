// The weights of a file under the names of a net's variables, where the file calls them otherwise:
// Keras's layers, keras.applications' nets, TensorFlow 2's forms of the ImageNet ResNet and of the
// MNIST nets.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/weights_source.h"

namespace carole::io {

// A reader on top of another, `file`, which must outlive it. Names that the file has stay as they
// are; the others of `wanted` are looked for by the rules of weights_mapping.cpp, with what hangs
// on them (slots, moving averages).
class MappedWeights final : public WeightsReader {
 public:
  MappedWeights(const WeightsReader& file, std::span<const VariableSpec> wanted);

  // What is done to weights of a net that computes the same otherwise.
  struct Adaptation {
    std::string bias;             // is taken off; "": none
    bool turns_channels = false;  // of a filter that reads blue first
  };

  // Lines: how many names each rule gave, and what is done to their weights.
  const std::vector<std::string>& report() const { return report_; }

  const std::string& path() const override { return file_.path(); }
  const std::vector<std::string>& names() const override { return names_; }
  bool Has(const std::string& name) const override { return sources_.contains(name); }
  Shape shape(const std::string& name) const override { return sources_.at(name).shape; }
  std::string type(const std::string& name) const override {
    return file_.type(sources_.at(name).name);
  }
  void Read(const std::string& name, std::span<float> out) const override;
  std::optional<int64_t> step() const override { return file_.step(); }
  const std::vector<std::string>& left_out() const override { return file_.left_out(); }

 private:
  struct Source {
    std::string name;  // in the file
    Shape shape;       // as wanted: a dense layer may be a convolution, element for element
    Adaptation adaptation;
  };

  void Map(const VariableSpec& wanted, const std::string& name, const Adaptation& adaptation);
  // A tensor of the file under another name.
  void Call(const std::string& name, const std::string& mapped, const Shape& wanted,
            bool turns_channels);
  // What else there may be among TensorFlow 2's objects.
  void MapObject(const std::string& object, const std::string& mapped, const Shape& wanted);
  void MapObjects(std::span<const VariableSpec> wanted, const std::vector<std::string>& variables);

  const WeightsReader& file_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, Source> sources_;
  std::vector<std::string> report_;
};

// TensorFlow 2's ImageNet ResNet calls resnet/NAME, as 1.4's does, NAME.
std::string WithoutResNetScope(const std::string& name);

}  // namespace carole::io
