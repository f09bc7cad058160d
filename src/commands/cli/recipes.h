// The programs whose jobs run here unchanged: their defaults, and their names for our flags. All of
// it is data; add a row.
//
// Names of flags are accepted whatever the recipe is; a recipe changes defaults, and how flags may
// be written.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/commands/cli/command_line.h"

namespace carole::commands {

struct FlagDefault {
  std::string_view flag;
  std::string_view value;
};

struct Recipe {
  std::string_view name;
  std::string_view program;
  std::span<const FlagDefault> train;  // where they differ from TF-Slim's
  std::span<const FlagDefault> eval;
  std::string_view argparse_flags;  // those that argparse read there; blanks between them
  std::string_view required = "";   // a flag that has no default there
  std::string_view otherwise;       // what is done here as its users wanted, and not as it did
};

// Throws UsageError that lists the names.
const Recipe& FindRecipe(std::string_view name);

// Adds --recipe, the other programs' names for flags, and their flags that cannot mean anything
// here. Call it after the flags of the command.
void AddRecipeFlags(CommandLine& line, std::string& recipe);

// As line.Parse(); then the recipe's defaults (train or eval) hold for what was not given, as far
// as the command has such flags. Throws UsageError where one that the recipe requires is missing.
bool ParseWithRecipe(CommandLine& line, const std::vector<std::string>& arguments,
                     const std::string& recipe, std::span<const FlagDefault> Recipe::*defaults);

}  // namespace carole::commands
