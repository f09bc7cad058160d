// How a record becomes a sample: the part of PipelineOptions that SampleReader needs.
#pragma once

#include <cstdint>

#include "io/augmentation/augmentation.h"
#include "io/datasets/datasets.h"
#include "io/image/image.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {

struct SampleOptions {
  const DatasetEntry* dataset = nullptr;              // FindDataset(name)
  const PreprocessingEntry* preprocessing = nullptr;  // FindPreprocessing(name)
  bool training = false;                              // selects the random preprocessing
  int height = 0;                                     // of the net's input
  int width = 0;
  int channels = 3;       // 1: color images become gray
  int labels_offset = 0;  // subtracted from the labels in the records
  int num_classes = 0;    // after the subtraction, labels must be in [0, num_classes)
  uint64_t seed = 0;
  DctMethod dct_method = DctMethod::kIntegerFast;
  bool dct_scaling = false;          // large JPEGs are decoded at a reduced size
  Augmentations augmentations = {};  // of training; all are active (Augmentations::Active())
  bool fast_mode = true;             // PreprocessingTask::fast_mode
  double min_crop_area = 0;          // PreprocessingTask::min_crop_area
  bool use_bounding_boxes = false;   // uses the boxes in the records if the preprocessing can
  bool random_order = false;         // records are read in random order: a hint to the system
};

}  // namespace carole::io
