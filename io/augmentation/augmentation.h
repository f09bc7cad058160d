// Random changes to training images, after preprocessing (io/preprocessing), which has distortions
// of its own. This is the first header of the room io/augmentation.
//
// There are two kinds:
//   Augmentation    changes one image, for instance erases a part of it. It does not see the label.
//   BatchTransform  changes a rank's whole batch, for instance mixes its images. It also changes
//                   the labels, which are therefore soft: a probability for each class.
//
// Both are objects with settings, of which the commands make flags. An object that its settings
// turn off costs nothing. Random numbers are keyed by what is changed, so the number of threads
// changes nothing. The number of ranks does not change an Augmentation either; a BatchTransform
// works on the batch of one rank.
//
// CONTRIBUTING.md says how to add one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/rng.h"
#include "src/core/settings.h"

namespace carole::io {

// One image, as the net gets it.
struct ImageTask {
  std::span<float> values;  // (height, width, channels), normalized; changed in place
  int height = 0;
  int width = 0;
  int channels = 0;
  // The standard deviation of the values over many photos. It is 1 if the preprocessing divides by
  // the deviation.
  float deviation = 1;
  Rng& rng;  // keyed by (name of the augmentation, epoch, record)
};

// The batch of one rank. Rows are independent images of training.
struct BatchTask {
  std::span<float> images;       // (rows, height, width, channels), normalized; changed in place
  std::span<float> soft_labels;  // (rows, classes), each row sums to 1; changed in place
  int64_t rows = 0;
  int height = 0;
  int width = 0;
  Rng& rng;  // keyed by (name of the transform, epoch, position of the first row in the epoch)
};

class Augmentation {
 public:
  virtual ~Augmentation() = default;

  // The settings, whose values are members of this object.
  virtual Settings settings() = 0;
  // Whether the settings turn it on. Called after all settings are checked.
  virtual bool is_active() const = 0;
  // Draws the random decisions, then applies them. May be called from several threads at once.
  virtual void Apply(const ImageTask& image) const = 0;
};

// The members are as those of Augmentation.
class BatchTransform {
 public:
  virtual ~BatchTransform() = default;

  virtual Settings settings() = 0;
  virtual bool is_active() const = 0;
  virtual void Apply(const BatchTask& batch) const = 0;
};

// An object with its name in the table. The name is part of the key of its random numbers.
template <typename T>
struct Named {
  std::string_view name;
  std::shared_ptr<T> object;
};
using NamedAugmentation = Named<Augmentation>;
using NamedTransform = Named<BatchTransform>;

// Everything that may be applied to a batch of training, in the order in which it is applied.
struct Augmentations {
  std::vector<NamedAugmentation> images;
  std::vector<NamedTransform> batches;  // after all images

  // Whether there is nothing to apply.
  bool empty() const { return images.empty() && batches.empty(); }
  // The settings of all objects.
  Settings settings() const;
  // Checks the settings. Returns the objects that are active. Throws UsageError.
  Augmentations Active() const;
  // Describes what is applied, such as "random_erasing"; empty if nothing is.
  std::string Describe() const;
};

// Makes every augmentation of the table (augmentation.cpp), with its default settings.
Augmentations AllAugmentations();

// The random numbers for `name`. a and b identify the stream: (epoch, record) for an Augmentation,
// (epoch, position of the first row in the epoch) for a BatchTransform.
Rng AugmentationRng(uint64_t seed, std::string_view name, int64_t a, int64_t b);

}  // namespace carole::io
