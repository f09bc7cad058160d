// ImageNet's lists (ILSVRC 2012), which are compiled into the program: the 1000 synsets in the
// order of their labels, and the label of each validation image.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

// A class of ImageNet: a set of synonyms in WordNet.
struct Synset {
  std::string_view id;    // "n01440764"
  std::string_view text;  // "tench, Tinca tinca"
};

// Returns the 1000 synsets, sorted by id. Element i has label i + 1; label 0 is "background".
std::span<const Synset> ImagenetSynsets();

// Returns the class names, as in ImageNet's labels.txt: "background", then the texts of the
// synsets.
std::vector<std::string> ImagenetClassNames();

// Returns the label 1 to 1000 of a synset, or 0 if it is not one of the 1000.
int ImagenetLabel(std::string_view id);

// Returns the labels 1 to 1000 of the 50,000 images ILSVRC2012_val_00000001.JPEG and so on.
std::span<const int> ImagenetValidationLabels();

// The contents of synsets.txt (a line "ID TEXT" per synset) and validation_labels.txt (numbers
// separated by white space). CMake makes their source file (lists.cmake).
extern const char kImagenetSynsetsText[];
extern const char kImagenetValidationText[];

}  // namespace carole::io
