// ImageNet's bounding boxes, read from annotations (XML files of PASCAL VOC's form in a tar
// archive) or from the CSV file that TF-Slim's process_bounding_boxes.py makes of them. Boxes are
// selected as by that tool.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/image/box.h"

namespace carole::io {

// Returns the boxes of one annotation as lines "xmin,ymin,xmax,ymax", sorted as text. Minima and
// maxima are put in order and clamped to [0, 1]. Empty boxes are left out, and so are objects of
// another of the 1000 synsets than `synset`. `file` is the annotation's name in error messages.
// Throws DataError if the XML is damaged or a number is missing.
std::vector<std::string> AnnotatedBoxes(std::string_view xml, const std::string& file,
                                        std::string_view synset);

// The boxes of all images, by file name.
class BoundingBoxes {
 public:
  BoundingBoxes() = default;

  // Reads a tar archive (.tar, .tar.gz, .tgz) of files SYNSET/NAME.xml, or a CSV file (.csv,
  // .csv.gz) of lines "NAME.JPEG,xmin,ymin,xmax,ymax". Throws DataError with the file and the line
  // or archive member.
  static BoundingBoxes Load(const std::filesystem::path& path);

  // Returns the boxes of an image such as "n01440764_18.JPEG"; empty if it has none.
  std::span<const Box> Find(const std::string& image) const;

  size_t num_images() const { return boxes_.size(); }
  size_t num_boxes() const { return num_boxes_; }

 private:
  // Adds the box "xmin,ymin,xmax,ymax" of an image. Error messages begin with `location`.
  void Add(const std::string& image, std::string_view numbers, const std::string& location);
  void LoadTar(const std::filesystem::path& path);
  void LoadCsv(const std::filesystem::path& path);

  std::unordered_map<std::string, std::vector<Box>> boxes_;
  size_t num_boxes_ = 0;
};

}  // namespace carole::io
