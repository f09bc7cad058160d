// "Did you mean …?" for words that a user typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole {

// The candidate with the least edit distance (Levenshtein 1966) to `word`, in any case, where a
// third of it or two letters would have to change; else the shortest that holds the word; else one
// of which half would have to change; else "".
std::string NearestName(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace carole
