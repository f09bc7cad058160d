// CIFAR-10: binary batches to TFRecords.
#include <fmt/format.h>

#include "io/cifar.h"
#include "io/datasets/build.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

void BuildSplit(const BuildOptions& options, const std::filesystem::path& folder,
                std::string_view split, const std::vector<std::string>& batches) {
  int64_t count = 0;
  for (const std::string& batch : batches)
    count += static_cast<int64_t>(OpenFile(folder / batch)->size().value_or(0)) / kCifarRecordBytes;
  SplitWriter writer(options, FindSplit(*options.dataset, split), NumToBuild(options, count));
  std::vector<uint8_t> pixels(kCifarRecordBytes - 1);
  for (const std::string& batch : batches) {
    const std::unique_ptr<Source> file = OpenFile(folder / batch);
    const std::string records = ReadCifarBatch(*file);
    for (size_t at = 0; at < records.size() && !writer.full(); at += kCifarRecordBytes) {
      const int label = CifarImage(std::string_view(records).substr(at), pixels.data());
      writer.Add({pixels.data(), kCifarSide, kCifarSide, 3}, label, file->name());
    }
  }
  writer.Commit();
}

}  // namespace

void BuildCifar10(const BuildOptions& options) {
  const std::filesystem::path inner = options.raw_dir / "cifar-10-batches-bin";
  const std::filesystem::path& folder = std::filesystem::exists(inner) ? inner : options.raw_dir;
  if (!std::filesystem::exists(folder / "data_batch_1.bin")) {
    throw DataError(
        fmt::format("[io.build] --raw_dir {}: no data_batch_1.bin there or in "
                    "cifar-10-batches-bin: want CIFAR-10's binary version, unpacked",
                    options.raw_dir.string()));
  }
  BuildSplit(options, folder, "train",
             {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin"});
  BuildSplit(options, folder, "test", {"test_batch.bin"});
  WriteLabels(options);
}

}  // namespace carole::io
