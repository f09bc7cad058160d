#include "io/datasets/imagenet/bounding_boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/archives/inflate.h"
#include "io/archives/tar.h"
#include "io/archives/xml.h"
#include "io/datasets/imagenet/imagenet_lists.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

constexpr uint64_t kMaxAnnotationBytes = 1 << 20;
constexpr uint64_t kMaxCsvBytes = uint64_t{1} << 30;

// Error messages begin with `location`.
double ToNumber(std::string_view text, const std::string& location) {
  const auto value = ParseNumber<double>(text);
  if (!value || !std::isfinite(*value))
    throw DataError(fmt::format("{}: got '{}', want a number", location, text.substr(0, 80)));
  return *value;
}

// Returns the child element `name`, which must exist.
const XmlElement& Child(const XmlElement& element, std::string_view name, const std::string& file) {
  const XmlElement* child = element.Find(name);
  if (child == nullptr) {
    throw DataError(fmt::format("[io.boxes] {}: <{}>: missing element <{}>", file,
                                element.name.substr(0, 80), name));
  }
  return *child;
}

double ChildNumber(const XmlElement& element, std::string_view name, const std::string& file) {
  return ToNumber(Child(element, name, file).text, fmt::format("[io.boxes] {}: <{}>", file, name));
}

// Returns the width or height of the image. Coordinates are divided by it, so it must not be 0.
double ImageSide(const XmlElement& size, std::string_view name, const std::string& file) {
  const double side = ChildNumber(size, name, file);
  if (side >= 1) return side;
  throw DataError(fmt::format("[io.boxes] {}: <{}>: got {}, want at least 1", file, name, side));
}

// Returns a file name without folder and last extension.
std::string Stem(std::string_view path) { return std::filesystem::path(path).stem().string(); }

}  // namespace

std::vector<std::string> AnnotatedBoxes(std::string_view xml, const std::string& file,
                                        std::string_view synset) {
  const XmlElement root = ParseXml(xml, file);
  const XmlElement& size = Child(root, "size", file);
  const double width = ImageSide(size, "width", file);
  const double height = ImageSide(size, "height", file);
  std::vector<std::string> lines;
  for (const XmlElement& object : root.children) {
    if (object.name != "object") continue;
    const std::string& name = Child(object, "name", file).text;
    if (name != synset && ImagenetLabel(name) != 0) continue;
    const XmlElement& box = Child(object, "bndbox", file);
    const auto range = [&](std::string_view low, std::string_view high, double side) {
      const double a = ChildNumber(box, low, file) / side;
      const double b = ChildNumber(box, high, file) / side;
      return std::pair(std::clamp(std::min(a, b), 0.0, 1.0), std::clamp(std::max(a, b), 0.0, 1.0));
    };
    const auto [xmin, xmax] = range("xmin", "xmax", width);
    const auto [ymin, ymax] = range("ymin", "ymax", height);
    if (xmin < xmax && ymin < ymax)
      lines.push_back(fmt::format("{:.4f},{:.4f},{:.4f},{:.4f}", xmin, ymin, xmax, ymax));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

void BoundingBoxes::Add(const std::string& image, std::string_view numbers,
                        const std::string& location) {
  Box box;
  for (float Box::*side : {&Box::xmin, &Box::ymin, &Box::xmax, &Box::ymax}) {
    const std::string_view field = numbers.substr(0, numbers.find(','));
    box.*side = static_cast<float>(ToNumber(field, location));
    if (box.*side < 0 || box.*side > 1)
      throw DataError(fmt::format("{}: got {}, want 0 to 1", location, field.substr(0, 80)));
    numbers.remove_prefix(std::min(field.size() + 1, numbers.size()));
  }
  if (!numbers.empty()) throw DataError(fmt::format("{}: got more than 4 numbers", location));
  boxes_[image].push_back(box);
  ++num_boxes_;
}

void BoundingBoxes::LoadTar(const std::filesystem::path& path) {
  const std::unique_ptr<Source> source = InflateIfGzip(OpenFile(path));
  TarReader tar(*source);
  std::string xml;
  while (const auto file = tar.Next()) {
    const std::filesystem::path member = file->name;
    const std::string synset = member.parent_path().filename().string();
    if (member.extension() != ".xml" || ImagenetLabel(synset) == 0) continue;
    const std::string location = fmt::format("{}: {}", path.string(), file->name);
    if (file->bytes > kMaxAnnotationBytes) {
      throw DataError(fmt::format("[io.boxes] {}: too long: got {} bytes, want at most {}",
                                  location, file->bytes, kMaxAnnotationBytes));
    }
    xml.resize(file->bytes);
    xml.resize(source->ReadAt(file->offset, xml));
    for (const std::string& line : AnnotatedBoxes(xml, location, synset))
      Add(Stem(file->name) + ".JPEG", line, "[io.boxes] " + location);
  }
}

void BoundingBoxes::LoadCsv(const std::filesystem::path& path) {
  const std::string text = ReadAll(*InflateIfGzip(OpenFile(path)), kMaxCsvBytes);
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t comma = std::min(line.find(','), line.size());
    Add(std::string(line.substr(0, comma)), line.substr(std::min(comma + 1, line.size())),
        fmt::format("[io.boxes] {}: line {}", path.string(), number));
  }
}

BoundingBoxes BoundingBoxes::Load(const std::filesystem::path& path) {
  BoundingBoxes boxes;
  const std::string name = path.filename().string();
  if (name.ends_with(".csv") || name.ends_with(".csv.gz")) {
    boxes.LoadCsv(path);
  } else {
    boxes.LoadTar(path);
  }
  return boxes;
}

std::span<const Box> BoundingBoxes::Find(const std::string& image) const {
  const auto found = boxes_.find(image);
  return found == boxes_.end() ? std::span<const Box>() : found->second;
}

}  // namespace carole::io
