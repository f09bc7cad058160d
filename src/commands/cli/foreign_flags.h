// Flags of other programs (TF-Slim's siblings, Estimators, Keras, PyTorch, timm, Lightning) and of
// earlier versions that this program does not have, and what to use here instead.
//
// A suggestion by spelling would mislead: --model_dir is written like --work_dir, but means
// --train_dir. To add a flag, add it to a row of the table in foreign_flags.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace carole::commands {

// Returns what to do instead of giving the flag `name`, such as "did you mean --train_dir?", or ""
// if no program is known to have such a flag. `has_flag` says which flags the command has.
std::string AdviseOnForeignFlag(std::string_view name,
                                const std::function<bool(const std::string& flag)>& has_flag);

}  // namespace carole::commands
