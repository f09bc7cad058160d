// Builds the TFRecords of CIFAR-10 from its binary batch files.
#include <fmt/format.h>

#include "io/datasets/build.h"
#include "io/datasets/cifar.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

struct RawSplit {
  std::string pixels, labels;
};

RawSplit ReadSplit(const DatasetEntry& dataset, const std::filesystem::path& folder,
                   const std::vector<std::string>& batches) {
  RawSplit split;
  std::vector<uint8_t> image(kCifarRecordBytes - 1);
  for (const std::string& batch : batches) {
    const std::unique_ptr<Source> file = OpenFile(folder / batch);
    const std::string records = ReadCifarBatch(*file);
    std::string labels;
    for (size_t at = 0; at < records.size(); at += kCifarRecordBytes) {
      labels += static_cast<char>(CifarImage(std::string_view(records).substr(at), image.data()));
      split.pixels.append(image.begin(), image.end());
    }
    CheckLabels(dataset, labels, file->name());
    split.labels += labels;
  }
  return split;
}

RawImages ToRaw(std::string_view name, const RawSplit& split) {
  return {.split = name,
          .height = kCifarSide,
          .width = kCifarSide,
          .channels = 3,
          .pixels = split.pixels,
          .labels = split.labels};
}

}  // namespace

std::vector<BuiltSplit> BuildCifar10(const BuildOptions& options) {
  const std::filesystem::path inner = options.raw_dir / "cifar-10-batches-bin";
  const std::filesystem::path& folder = std::filesystem::exists(inner) ? inner : options.raw_dir;
  if (!std::filesystem::exists(folder / "data_batch_1.bin")) {
    throw DataError(fmt::format(
        "[io.build] {} {}: no data_batch_1.bin here or in cifar-10-batches-bin: want the unpacked "
        "binary version of CIFAR-10",
        Option("raw_dir"), options.raw_dir.string()));
  }
  const RawSplit train = ReadSplit(*options.dataset, folder,
                                   {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin"});
  const RawSplit test = ReadSplit(*options.dataset, folder, {"test_batch.bin"});
  const auto built = WriteImages(options, {ToRaw("train", train), ToRaw("test", test)});
  WriteLabels(options);
  return built;
}

}  // namespace carole::io
