// What TensorFlow's two checkpoint formats share: tensors that may lie in several parts. Not for
// others.
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

// Part of a tensor; `place` is the format's own number for where it lies.
struct TfPart {
  TfSlice slice;  // empty: the whole tensor
  size_t place = 0;
};

class TfTensors : public WeightsReader {
 public:
  const std::string& path() const override { return path_; }
  const std::vector<std::string>& names() const override { return names_; }
  const std::vector<std::string>& left_out() const override { return left_out_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape; }
  std::string type(const std::string& name) const override {
    return NameOf(tensors_.at(name).type);
  }
  std::optional<int64_t> step() const override;
  void Read(const std::string& name, std::span<float> out) const override;

 protected:
  explicit TfTensors(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void Refuse(std::string_view what) const;

  // What parse() gives. Its DataError, which knows no place (tf_proto.h), becomes one of this file.
  template <typename Parse>
  auto Parsed(const Parse& parse) const {
    try {
      return parse();
    } catch (const DataError& error) {
      Refuse(WithoutTag(error.what()));
    }
  }

  // Lists a tensor. Throws DataError for sizes that cannot be and parts that do not make a whole.
  void Add(const std::string& name, TfType type, std::span<const int64_t> dims,
           std::vector<TfPart> parts);

  // Reads the little-endian elements of a part; `out` has their size in bytes.
  virtual void ReadPart(const std::string& name, TfType type, const TfPart& part,
                        std::span<char> out) const = 0;
  // Throws DataError when the file cannot hold so many elements in this part.
  virtual void CheckRoom(const std::string& name, TfType type, const TfPart& part,
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

  const std::string path_;
  std::vector<std::string> names_;
  std::vector<std::string> left_out_;
  std::unordered_map<std::string, Tensor> tensors_;  // of numbers
};

}  // namespace carole::io
