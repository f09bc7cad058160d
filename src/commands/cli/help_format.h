// The format of --help and --helpfull. Man pages and shell completion are generated from it, so it
// is regular:
//
//   Trains a net ...                            summary, wrapped
//
//   Usage: carole train [FLAGS]
//
//   Data:                                       group heading: column 0, ends with a colon
//     --dataset_dir,--data_dir PATH  Folder of  two blanks, names, blank, type, two or more blanks,
//                                    ...        text; lines that go on begin with 36 blanks
//     --[no]use_grayscale            Feed ...   a bool has no type: --use_grayscale and
//                                               --nouse_grayscale
//
//   Differences from TF-Slim:                   a group of other entries, in --helpfull only
//     train_image_classifier       Training ...
//
//   Examples:
//     carole train ...
//
// Types: INT, FLOAT, TEXT or PATH; with a range as in INT>0, INT>=0 or INT[0..4096]; a comma list
// ends with ",...". Text: "(required)" if it is, a sentence that ends with a period, "One of: a,
// b." if values are listed, and the default as in "[default: 32]". Nothing is wider than 100
// columns, unless a single word is.
#pragma once

#include <string>

#include "src/commands/cli/flag.h"

namespace carole::commands {

// "--threads INT[0..4096]", "--[no]report", "IMAGE..." for an argument without a name.
std::string FlagSpec(const Flag& flag);

// The named values that a flag allows, as " One of: a, b."; else "".
std::string AllowedValues(const Flag& flag);

// " [default: 32]"; "" without a default.
std::string DefaultText(const Flag& flag);

// The text in lines of at most 100 columns. The first line begins after `column` columns that the
// caller has filled; further lines begin with `indent` blanks.
std::string WrapText(const std::string& text, size_t column, size_t indent);

// One entry of a help page: "  NAME  text", wrapped, with a newline at the end.
std::string HelpEntry(const std::string& name, const std::string& text);

}  // namespace carole::commands
