// Suggestions ("did you mean ...?") for words that a user typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole {

// Returns the candidate that the user probably meant, or "" if none is similar. Upper and lower
// case do not matter. The distance is Levenshtein's (1966): how many letters to insert, delete or
// replace. The first of these rules that finds a candidate decides:
//   1. The distance is at most 1: "bath_size" gives batch_size.
//   2. The candidate contains the word: "epochs" gives train_epochs. The shortest candidate wins.
//      If the word has only one or two letters, the candidate must begin with it.
//   3. The distance is at most 2, or a third of the word's length: "bacth_size" gives batch_size.
//      In a word of two letters, one must fit.
//   4. The word abbreviates the candidate: it begins with the same letter, and all its letters
//      occur in this order. "resnet50" gives resnet_v1_50. The word must have at least 4 letters.
//   5. The distance is at most half of the word's length, and both begin with the same letter.
std::string NearestName(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace carole
