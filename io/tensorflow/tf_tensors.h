// The common base of TensorFlow's two checkpoint formats: tensors that may be stored in several
// slices. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/weights_source.h"
#include "io/tensorflow/tf_proto.h"
#include "src/core/error.h"

namespace carole::io {

// A stored part of a tensor.
struct TfPart {
  TfSlice slice;     // empty: the whole tensor
  size_t index = 0;  // the derived class finds the location of the part by this number
};

// Implements WeightsSource on top of ReadPart(). The derived class calls Add() for each tensor.
class TfTensors : public WeightsSource {
 public:
  const std::string& path() const override { return path_; }
  const std::vector<std::string>& names() const override { return names_; }
  const std::vector<std::string>& other_tensors() const override { return other_tensors_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape; }
  std::string type(const std::string& name) const override {
    return NameOf(tensors_.at(name).type);
  }
  std::optional<int64_t> step() const override;
  void Read(const std::string& name, std::span<float> out) const override;

 protected:
  explicit TfTensors(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void Refuse(std::string_view what) const;  // throws DataError with the path

  // Returns parse(). A DataError of tf_proto.h does not name the file, so it is thrown again with
  // the path.
  template <typename Parse>
  auto Parsed(const Parse& parse) const {
    try {
      return parse();
    } catch (const DataError& error) {
      Refuse(WithoutTag(error.what()));
    }
  }

  // Adds a tensor. Throws DataError if its shape is invalid, or if its parts do not cover it
  // exactly.
  void Add(const std::string& name, TfType type, std::span<const int64_t> dims,
           std::vector<TfPart> parts);

  // Reads the little-endian elements of a part. `out` has their size in bytes. Throws DataError.
  virtual void ReadPart(const std::string& name, TfType type, const TfPart& part,
                        std::span<char> out) const = 0;
  // Throws DataError if the file cannot hold this number of elements for the part.
  virtual void CheckPartFits(const std::string& name, TfType type, const TfPart& part,
                             uint64_t elements) const = 0;

 private:
  struct Tensor {
    TfType type{};
    Shape shape;
    std::vector<TfPart> parts;
  };

  void CheckParts(const std::string& name, const Tensor& tensor) const;
  std::vector<char> ReadChecked(const std::string& name, const Tensor& tensor,
                                const TfPart& part) const;
  // Reads a global step of any integer or floating-point type. Throws DataError if it is not one
  // whole number.
  int64_t ReadStep(const std::string& name, const Tensor& tensor) const;

  const std::string path_;
  std::vector<std::string> names_;
  std::vector<std::string> other_tensors_;
  std::unordered_map<std::string, Tensor> tensors_;  // all of names_, and the global step
  std::string unreadable_step_;  // description of a global step that is not a number; "": none
};

}  // namespace carole::io
