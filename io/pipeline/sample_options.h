// What is made of each record of a split: the part of a pipeline's options that its readers need.
#pragma once

#include <cstdint>
#include <memory>

#include "io/datasets/datasets.h"
#include "io/image/image.h"
#include "io/image/jpeg.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {

struct SampleOptions {
  const DatasetEntry* dataset = nullptr;              // FindDataset(name)
  const PreprocessingEntry* preprocessing = nullptr;  // FindPreprocessing(name)
  bool training = false;                              // random preprocessing
  int height = 0;                                     // of the net's input
  int width = 0;
  int channels = 3;       // 1: colors become gray
  int labels_offset = 0;  // subtracted from the records' labels
  int num_classes = 0;    // labels are then in [0, num_classes)
  uint64_t seed = 0;
  DctMethod dct_method = DctMethod::kIntegerFast;
  std::shared_ptr<const ImageDecoderFactory> decoder_factory;  // JpegOptions, shared by pipelines
  bool dct_scaling = false;         // large JPEGs are decoded at less than their size
  bool fast_mode = true;            // of Inception's training
  bool use_bounding_boxes = false;  // of the records, where the preprocessing takes them
  bool random_order = false;        // of reads: a hint to the operating system
};

}  // namespace carole::io
