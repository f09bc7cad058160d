#include "src/core/text/nearest_name.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "src/core/text/lower_case.h"

namespace carole {
namespace {

// The Levenshtein distance: how many letters to insert, delete or replace.
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

// Whether the name begins with the first letter of the word and contains the others in this order:
// resnet50 abbreviates resnet_v1_50.
bool Abbreviates(std::string_view word, std::string_view name) {
  if (word.empty() || name.empty() || word[0] != name[0]) return false;
  size_t found = 0;
  for (const char c : name) found += found < word.size() && c == word[found] ? 1 : 0;
  return found == word.size();
}

}  // namespace

std::string NearestName(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string wanted = LowerCase(std::string(word));
  const auto size = static_cast<int>(wanted.size());
  std::string nearest;
  std::string containing, abbreviated;  // the shortest candidates of these kinds
  int least = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const std::string name = LowerCase(candidate);
    const int distance = EditDistance(wanted, name);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
    const auto is_shorter = [&](const std::string& than) {
      return than.empty() || name.size() < than.size();
    };
    const bool contains =
        size > 2 ? name.find(wanted) != std::string::npos : name.starts_with(wanted);
    if (contains && is_shorter(containing)) containing = candidate;
    if (Abbreviates(wanted, name) && is_shorter(abbreviated)) abbreviated = candidate;
  }
  if (least < 2) return nearest;
  if (!containing.empty()) return containing;
  if (least <= std::max(2, size / 3) && least < size) return nearest;
  if (size > 3 && !abbreviated.empty()) return abbreviated;
  const bool begins_alike = !nearest.empty() && size > 0 && LowerCase(nearest)[0] == wanted[0];
  return least <= size / 2 && begins_alike ? nearest : "";
}

}  // namespace carole
