#include "src/core/nearest_name.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace carole {
namespace {

std::string Lower(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = std::exchange(row[0], static_cast<int>(i));
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string wanted = Lower(word);
  const auto size = static_cast<int>(wanted.size());
  std::string nearest, holds_it;  // the shortest of those: epochs, train_epochs
  int least = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const std::string name = Lower(candidate);
    const int distance = EditDistance(wanted, name);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
    const bool is_shorter = holds_it.empty() || name.size() < holds_it.size();
    const bool holds = size > 2 ? name.find(wanted) != std::string::npos : name.starts_with(wanted);
    if (is_shorter && holds) holds_it = candidate;
  }
  if (least <= std::max(2, size / 3)) return nearest;
  if (!holds_it.empty()) return holds_it;
  return least <= size / 2 ? nearest : "";
}

}  // namespace carole
