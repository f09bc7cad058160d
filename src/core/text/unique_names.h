// Gives each node of a graph a name that no other node has.
#pragma once

#include <set>
#include <string>

namespace carole {

class UniqueNames {
 public:
  // Returns `name`, or NAME_1, NAME_2 and so on if it is taken. The result is taken from now on.
  std::string Take(const std::string& name) {
    std::string unique = name;
    for (int n = 1; !taken_.insert(unique).second; ++n) unique = name + "_" + std::to_string(n);
    return unique;
  }

 private:
  std::set<std::string> taken_;
};

}  // namespace carole
