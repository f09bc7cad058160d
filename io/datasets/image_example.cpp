#include "io/datasets/image_example.h"

#include <fmt/format.h>

#include <vector>

#include "io/image/exif.h"
#include "io/image/image.h"
#include "io/image/jpeg.h"
#include "io/image/jpeg_encode.h"
#include "io/records/example.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::io {

CheckedImage CheckImage(std::string bytes, const ImageConversion& conversion,
                        const std::string& location) {
  constexpr int kQuality = 100;
  thread_local Image image;
  try {
    DecodeImage(bytes, 3, &image, true);
  } catch (const DataError& damage) {
    try {
      DecodeImage(bytes, 3, &image);
    } catch (const DataError& error) {
      throw DataError(fmt::format("[io.build] {}: {}", location, error.what()));
    }
    // TensorFlow's tools accept this image too.
    LogWarning("io.build", "{}: {}; the image is used as TensorFlow decodes it", location,
               WithoutTag(damage.what()));
  }
  const bool cmyk = IsJpeg(bytes) && JpegChannels(bytes) == 4;
  const bool to_jpeg = IsJpeg(bytes) || conversion.only_jpeg;
  const int orientation = ExifOrientation(bytes);
  const bool turn = conversion.apply_exif_orientation && orientation != 1;
  if (turn) image = TurnUpright(image.view(), orientation);
  if (cmyk || turn || (conversion.only_jpeg && !IsJpeg(bytes)))
    bytes = to_jpeg ? EncodeJpeg(image.view(), kQuality) : EncodePng(image.view());
  return {.bytes = std::move(bytes),
          .height = image.height,
          .width = image.width,
          .orientation = orientation};
}

std::string ImagenetExample(const CheckedImage& image, const ImagenetFields& fields) {
  ExampleBuilder example;
  example.Add("image/height", int64_t{image.height});
  example.Add("image/width", int64_t{image.width});
  example.Add("image/colorspace", "RGB");
  example.Add("image/channels", int64_t{3});
  example.Add("image/class/label", fields.label);
  example.Add("image/class/synset", fields.synset);
  example.Add("image/class/text", fields.text);
  constexpr std::pair<const char*, float Box::*> kSides[] = {
      {"xmin", &Box::xmin}, {"ymin", &Box::ymin}, {"xmax", &Box::xmax}, {"ymax", &Box::ymax}};
  for (const auto& [name, side] : kSides) {
    std::vector<float> values;
    for (const Box& box : fields.boxes) values.push_back(box.*side);
    example.Add(fmt::format("image/object/bbox/{}", name), std::span<const float>(values));
  }
  const std::vector<int64_t> labels(fields.boxes.size(), fields.label);
  example.Add("image/object/bbox/label", std::span<const int64_t>(labels));
  example.Add("image/format", "JPEG");
  example.Add("image/filename", fields.filename);
  example.Add("image/encoded", image.bytes);
  return example.Finish();
}

std::string PhotoExample(const CheckedImage& image, int64_t label) {
  ExampleBuilder example;
  example.Add("image/encoded", image.bytes);
  example.Add("image/format", IsJpeg(image.bytes) ? "jpg" : "png");
  example.Add("image/class/label", label);
  example.Add("image/height", int64_t{image.height});
  example.Add("image/width", int64_t{image.width});
  return example.Finish();
}

}  // namespace carole::io
