// Recipes: the programs whose jobs run here unchanged, with their defaults and flag names.
//
// The flags of all these programs are accepted under every recipe. A recipe (--recipe=NAME) changes
// defaults, and which flags may be written as argparse allows it. To add a recipe, add a row to
// kRecipes in recipes.cpp; to add a flag of another program, add a row to the tables there.
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
  std::string_view program;                     // the name that users know
  std::span<const FlagDefault> train;           // defaults of training that differ from TF-Slim's
  std::span<const FlagDefault> eval;            // defaults of evaluation that differ from TF-Slim's
  std::span<const FlagDefault> exporting = {};  // defaults of export that differ
  std::string_view argparse_flags;  // flags that argparse read there; separated by blanks
  std::string_view required = "";   // a flag that has no default there
  std::string_view differences;     // where this program intentionally behaves differently
};

// Returns the recipe of this name. Throws UsageError that lists the names if there is none.
const Recipe& FindRecipe(std::string_view name);

// Adds --recipe, the other programs' names for flags, and their flags that cannot mean anything
// here. `recipe` holds the default. Call it after all flags of the command were added.
void AddRecipeFlags(CommandLine& line, std::string& recipe);

// Parses the arguments as line.Parse() does, with the same result. Then sets the recipe's defaults
// (`defaults`: &Recipe::train, &Recipe::eval or &Recipe::exporting) of flags that were not given;
// defaults of flags that the command lacks are skipped. `recipe`: the variable that
// AddRecipeFlags() was given. Throws UsageError if a flag that the recipe requires is missing.
bool ParseWithRecipe(CommandLine& line, const std::vector<std::string>& arguments,
                     const std::string& recipe, std::span<const FlagDefault> Recipe::*defaults);

}  // namespace carole::commands
