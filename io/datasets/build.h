// What the builders of datasets share: images to one TFRecord file in TF-Slim's form.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "io/bytes.h"
#include "io/datasets.h"
#include "io/image.h"
#include "io/tfrecord.h"

namespace carole::io {

// Writes one split. The file appears at Commit().
class SplitWriter {
 public:
  // total: images that will come, for the progress report.
  SplitWriter(const BuildOptions& options, const SplitEntry& split, int64_t total);

  // Throws DataError, naming `source` and the image's number, when the label is not one of the
  // dataset's classes.
  void Add(const ImageView& image, int label, const std::string& source);

  bool full() const { return done_ == total_; }
  void Commit();

 private:
  const BuildOptions& options_;
  std::string_view split_;
  std::unique_ptr<Sink> sink_;
  TfRecordWriter writer_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

// Writes labels.txt: INDEX:NAME lines. Without names: those of the table.
void WriteLabels(const BuildOptions& options, std::span<const std::string> names);
void WriteLabels(const BuildOptions& options);

// max_images, or all `count` when it is 0.
int64_t NumToBuild(const BuildOptions& options, int64_t count);

}  // namespace carole::io
