// "Did you mean …?" for words that a user typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole {

// The candidate with the least edit distance (Levenshtein 1966) to `word`; "" when none is near:
// more than a third of the word, and more than two letters, would have to change.
std::string NearestName(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace carole
