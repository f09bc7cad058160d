#include "io/datasets/imagenet/imagenet_lists.h"

#include <algorithm>
#include <charconv>

#include "src/core/check.h"

namespace carole::io {
namespace {

std::vector<Synset> ParseSynsets(std::string_view text) {
  std::vector<Synset> synsets;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t blank = std::min(line.find(' '), line.size());
    synsets.push_back({line.substr(0, blank), line.substr(std::min(blank + 1, line.size()))});
  }
  CAROLE_CHECK_EQ(synsets.size(), size_t{1000}, "synsets in the compiled list");
  return synsets;
}

std::vector<int> ParseNumbers(std::string_view text) {
  std::vector<int> numbers;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    int number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc()) continue;
    numbers.push_back(number);
    at = after;
  }
  CAROLE_CHECK_EQ(numbers.size(), size_t{50'000}, "validation labels in the compiled list");
  return numbers;
}

}  // namespace

std::span<const Synset> ImagenetSynsets() {
  static const std::vector<Synset> synsets = ParseSynsets(kImagenetSynsetsText);
  return synsets;
}

std::vector<std::string> ImagenetClassNames() {
  std::vector<std::string> names = {"background"};
  for (const Synset& synset : ImagenetSynsets()) names.emplace_back(synset.text);
  return names;
}

int ImagenetLabel(std::string_view id) {
  const std::span<const Synset> synsets = ImagenetSynsets();
  const auto found = std::lower_bound(synsets.begin(), synsets.end(), id,
                                      [](const Synset& s, std::string_view x) { return s.id < x; });
  if (found == synsets.end() || found->id != id) return 0;
  return static_cast<int>(found - synsets.begin()) + 1;
}

std::span<const int> ImagenetValidationLabels() {
  static const std::vector<int> labels = ParseNumbers(kImagenetValidationText);
  return labels;
}

}  // namespace carole::io
