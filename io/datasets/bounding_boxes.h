// The boxes that people drew around ImageNet's objects, from annotations (XML in a tar, PASCAL
// VOC's form) or from the CSV that TF-Slim's tool makes of them. What is kept follows that tool
// (process_bounding_boxes).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/image/box.h"

namespace carole::io {

// The boxes of one annotation as lines "xmin,ymin,xmax,ymax", sorted as text: each pair in order
// and within [0, 1], empty boxes and objects of another of the 1000 synsets than `synset` left out.
// `file` is what errors call it. Throws DataError for XML that is damaged or lacks a number.
std::vector<std::string> AnnotatedBoxes(std::string_view xml, const std::string& file,
                                        std::string_view synset);

class BoundingBoxes {
 public:
  BoundingBoxes() = default;

  // `path` is a tar (.tar, .tar.gz, .tgz) of SYNSET/NAME.xml or a CSV of lines
  // "NAME.JPEG,xmin,ymin,xmax,ymax". Throws DataError that names file and line, or member.
  static BoundingBoxes Load(const std::filesystem::path& path);

  // Of "n01440764_18.JPEG"; empty when there are none.
  std::span<const Box> Find(const std::string& image) const;

  size_t num_images() const { return boxes_.size(); }
  size_t num_boxes() const { return num_boxes_; }

 private:
  // "xmin,ymin,xmax,ymax" of an image; `place` starts errors.
  void Add(const std::string& image, std::string_view numbers, const std::string& place);
  void LoadTar(const std::filesystem::path& path);
  void LoadCsv(const std::filesystem::path& path);

  std::unordered_map<std::string, std::vector<Box>> boxes_;
  size_t num_boxes_ = 0;
};

}  // namespace carole::io
