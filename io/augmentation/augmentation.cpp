#include "io/augmentation/augmentation.h"

#include "io/augmentation/random_erasing.h"
#include "src/core/hash.h"
#include "src/core/text/join_names.h"

namespace carole::io {
namespace {

template <typename Object>
void AppendSettings(const std::vector<Named<Object>>& objects, Settings& settings) {
  for (const auto& [name, object] : objects)
    for (Setting& setting : object->settings()) settings.push_back(std::move(setting));
}

template <typename Object>
std::vector<Named<Object>> OnlyActive(const std::vector<Named<Object>>& objects) {
  std::vector<Named<Object>> active;
  for (const Named<Object>& named : objects)
    if (named.object->is_active()) active.push_back(named);
  return active;
}

}  // namespace

// To add an augmentation, include its file and add a row here.
Augmentations AllAugmentations() {
  return {.images = {{"random_erasing", std::make_shared<RandomErasing>()}}, .batches = {}};
}

Settings Augmentations::settings() const {
  Settings settings;
  AppendSettings(images, settings);
  AppendSettings(batches, settings);
  return settings;
}

Augmentations Augmentations::Active() const {
  CheckSettings("augmentation", settings());
  return {.images = OnlyActive(images), .batches = OnlyActive(batches)};
}

std::string Augmentations::Describe() const {
  std::string text = JoinNames(images);
  if (!images.empty() && !batches.empty()) text += ", ";
  return text + JoinNames(batches);
}

Rng AugmentationRng(uint64_t seed, std::string_view name, int64_t a, int64_t b) {
  return Rng(seed ^ Fnv1a64(name), RngPurpose::kAugment, static_cast<uint64_t>(a),
             static_cast<uint64_t>(b));
}

}  // namespace carole::io
