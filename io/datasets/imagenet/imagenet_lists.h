// ImageNet's lists (ILSVRC 2012), which travel in the program: the 1000 synsets in the order of
// their labels, and the label of each validation image.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

struct Synset {
  std::string_view id;    // "n01440764"
  std::string_view text;  // "tench, Tinca tinca"
};

// 1000 synsets, sorted by id; label i + 1 is element i (0 is "background").
std::span<const Synset> ImagenetSynsets();

// "background", then the texts of the synsets: what labels.txt of ImageNet says.
std::vector<std::string> ImagenetClassNames();

// The label 1..1000 of a synset; 0 when it is none of the 1000.
int ImagenetLabel(std::string_view id);

// The labels 1..1000 of the 50,000 images ILSVRC2012_val_00000001.JPEG and so on.
std::span<const int> ImagenetValidationLabels();

// The text of the lists: a line "ID TEXT" for each synset; numbers between blanks.
extern const char kImagenetSynsetsText[];
extern const char kImagenetValidationText[];

}  // namespace carole::io
