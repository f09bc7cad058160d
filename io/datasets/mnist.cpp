// Builds MNIST and data sets of the same form (Fashion-MNIST) from IDX files or Keras's .npz file.
#include <fmt/format.h>

#include "io/archives/npz.h"
#include "io/datasets/build.h"
#include "io/datasets/idx.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

// One split of the raw data.
struct RawSplit {
  std::string images_name, labels_name;  // file names, for error messages
  IdxImages images;
  std::string labels;
};

RawSplit ReadIdxSplit(const fs::path& folder, const std::string& stem) {
  std::unique_ptr<Source> images = OpenIdx(folder, stem + "-images", 3);
  std::unique_ptr<Source> labels = OpenIdx(folder, stem + "-labels", 1);
  RawSplit split{.images_name = images->name(), .labels_name = labels->name()};
  split.images = ReadIdxImages(std::move(images));
  split.labels = ReadIdxLabels(std::move(labels));
  return split;
}

RawSplit ReadNpzSplit(const NpzFile& file, const std::string& stem) {
  RawSplit split{.images_name = file.name() + ": x_" + stem,
                 .labels_name = file.name() + ": y_" + stem};
  ByteArray images = file.Read("x_" + stem, 3);
  split.images = {.count = images.shape[0],
                  .height = static_cast<int>(images.shape[1]),
                  .width = static_cast<int>(images.shape[2]),
                  .pixels = std::move(images.bytes)};
  split.labels = file.Read("y_" + stem, 1).bytes;
  return split;
}

// Returns `raw` if it is an .npz file, or else NAME.npz in the folder `raw` if that has no IDX
// files. Returns an empty path if there is neither.
fs::path FindNpz(const DatasetEntry& dataset, const fs::path& raw) {
  if (raw.extension() == ".npz" && fs::is_regular_file(raw)) return raw;
  const fs::path file = raw / fmt::format("{}.npz", dataset.name);
  return FindIdx(raw, "train-images", 3).empty() && fs::is_regular_file(file) ? file : fs::path();
}

void CheckSizes(const RawSplit& split) {
  const IdxImages& images = split.images;
  if (images.height != 28 || images.width != 28) {
    throw DataError(fmt::format("[io.build] {}: wrong image size: got {}x{}, want 28x28",
                                split.images_name, images.height, images.width));
  }
  if (static_cast<int64_t>(split.labels.size()) != images.count) {
    throw DataError(fmt::format("[io.build] {}: wrong number of labels: got {}, want {} as in {}",
                                split.labels_name, split.labels.size(), images.count,
                                split.images_name));
  }
}

RawImages ToRaw(std::string_view name, const RawSplit& split) {
  return {.split = name,
          .height = split.images.height,
          .width = split.images.width,
          .pixels = split.images.pixels,
          .labels = split.labels};
}

}  // namespace

std::vector<fs::path> FindRawMnist(const DatasetEntry& dataset, const fs::path& raw_dir) {
  if (const fs::path npz = FindNpz(dataset, raw_dir); !npz.empty()) return {npz};
  std::vector<fs::path> files;
  for (const auto& [stem, rank] :
       {std::pair{"train-images", 3}, {"train-labels", 1}, {"t10k-images", 3}, {"t10k-labels", 1}})
    files.push_back(FindIdx(raw_dir, stem, rank));
  if (files.front().empty()) return {};
  std::erase(files, fs::path());
  return files;
}

// Reads both splits before it writes one. Otherwise an error in the second split would leave half a
// data set, which would be noticed only when the other half is needed.
std::vector<BuiltSplit> BuildMnist(const BuildOptions& options) {
  const fs::path npz = FindNpz(*options.dataset, options.raw_dir);
  RawSplit train, test;
  if (npz.empty()) {
    train = ReadIdxSplit(options.raw_dir, "train");
    test = ReadIdxSplit(options.raw_dir, "t10k");
  } else {
    const NpzFile file(OpenFile(npz));
    train = ReadNpzSplit(file, "train");
    test = ReadNpzSplit(file, "test");
  }
  for (const RawSplit* split : {&train, &test}) {
    CheckSizes(*split);
    CheckLabels(*options.dataset, split->labels, split->labels_name);
  }
  const auto built = WriteImages(options, {ToRaw("train", train), ToRaw("test", test)});
  WriteLabels(options);
  return built;
}

}  // namespace carole::io
