#include "io/datasets/build.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/datasets/image_example.h"
#include "io/disk.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

std::unique_ptr<Sink> CreateOutput(const std::filesystem::path& folder, std::string_view name) {
  MakeFolder("io.build", folder.string());
  return CreateFile(folder / name);
}

}  // namespace

SplitWriter::SplitWriter(const BuildOptions& options, const SplitEntry& split, int64_t total)
    : options_(options),
      split_(split.name),
      sink_(CreateOutput(options.output_dir, split.pattern)),
      writer_(*sink_),
      total_(total) {}

void SplitWriter::Add(const ImageView& image, int label, const std::string& source) {
  if (label < 0 || label >= options_.dataset->num_classes) {
    throw DataError(fmt::format("[io.build] {}: image {}: label out of range: got {}, want 0 to {}",
                                source, done_, label, options_.dataset->num_classes - 1));
  }
  writer_.Write(PhotoExample(
      {.bytes = EncodePng(image), .height = image.height, .width = image.width}, label));
  constexpr int64_t kReportEvery = 1000;
  ++done_;
  if (done_ % kReportEvery == 0 || full()) options_.Report(split_, done_, total_);
}

void SplitWriter::Commit() {
  CAROLE_CHECK_EQ(done_, total_, "images written to split {}", split_);
  sink_->Commit();
}

void WriteLabels(const BuildOptions& options, std::span<const std::string> names) {
  const std::unique_ptr<Sink> sink = CreateOutput(options.output_dir, "labels.txt");
  for (size_t i = 0; i < names.size(); ++i) sink->Append(fmt::format("{}:{}\n", i, names[i]));
  sink->Commit();
}

void WriteLabels(const BuildOptions& options) {
  const auto& names = options.dataset->class_names;
  WriteLabels(options, std::vector<std::string>(names.begin(), names.end()));
}

int64_t NumToBuild(const BuildOptions& options, int64_t count) {
  return options.max_images > 0 ? std::min(options.max_images, count) : count;
}

}  // namespace carole::io
